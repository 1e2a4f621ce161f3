"""Scaled sign: EF-signSGD, Karimireddy et al. 2019 (arXiv 1901.09847)."""

import numpy as np
from numpy.typing import NDArray

from .base import Codec, Codes, Layout


class Sign(Codec):
    """Of every value one bit, its sign, and of each array the mean magnitude.

    Algorithm 1's ``norm(x, 1) / d * sign(x)``, for each array by itself, where the paper has one vector. A
    value of 0 counts as positive.
    """

    paper = "karimireddy2019error"
    needs_feedback = True

    def layout(self, size: int) -> Layout:
        return {"scales": ((len(self._sizes(size)),), "float32"), "signs": ((-(-size // 8),), "uint8")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        arrays = np.split(np.abs(vector), np.cumsum(self._sizes(vector.size))[:-1])
        scales = [array.mean(dtype=np.float64) if array.size else 0.0 for array in arrays]
        return {"scales": np.array(scales, np.float32), "signs": np.packbits(vector >= 0)}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        if (codes["scales"] < 0).any():
            raise ValueError("a scale below 0")
        scales = np.repeat(codes["scales"], self._sizes(size))
        return np.where(np.unpackbits(codes["signs"], count=size), scales, -scales)

    def _sizes(self, size: int) -> list[int]:
        return [int(np.prod(shape)) for shape in self.shapes] or [size]

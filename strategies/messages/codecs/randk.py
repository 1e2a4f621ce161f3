"""Random-k: Stich et al. 2018, "Sparsified SGD with Memory" (arXiv 1809.07599)."""

import numpy as np
from numpy.typing import NDArray

from .base import Codec, Codes, Layout, check_share, count_of


class RandK(Codec):
    """A uniform share ``randk:SHARE``: k = ceil(SHARE d) of d values, times d / k, which is unbiased.

    Of 5 values ``randk:0.3`` sends 2, times 2.5; with feedback not scaled. Positions travel as a seed.
    """

    paper = "stich2018sparsified"

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        super().__init__("", feedback)
        self.share = check_share("randk", argument)

    def layout(self, size: int) -> Layout:
        return {"seed": ((1,), "uint64"), "values": ((count_of(self.share, size),), "float32")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        seed = rng.integers(2**63, size=1).astype(np.uint64)
        values = vector[self._indices(seed, vector.size)]
        if not self.feedback and values.size:
            values = values * np.float32(vector.size / values.size)
        return {"seed": seed, "values": values}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        vector = np.zeros(size, np.float32)
        vector[self._indices(codes["seed"], size)] = codes["values"]
        return vector

    def _indices(self, seed: NDArray[np.uint64], size: int) -> NDArray[np.int64]:
        return np.random.default_rng(int(seed[0])).permutation(size)[: count_of(self.share, size)]

"""QSGD: Alistarh et al. 2017 (arXiv 1610.02132); FedPAQ sends it: Reisizadeh et al. 2020 (1909.13014)."""

import numpy as np
from numpy.typing import NDArray

from .base import Codec, Codes, Layout

BUCKET = 512
BITS = tuple("2345678")


class Qsgd(Codec):
    """Values rounded at random to ``qsgd:BITS`` bits, 2 to 8, as multiples of ``norm / levels``: unbiased.

    Section 3.2's buckets: each 512 values have their own L2 norm. With feedback all is divided by 1 + omega,
    the bound on the variance (lemma 3.1). Codes have one length here, where the paper uses Elias coding.
    """

    paper = "alistarh2017qsgd"

    def __init__(self, argument: str = "", feedback: bool | None = None) -> None:
        super().__init__("", feedback)
        if argument not in BITS:
            raise ValueError("qsgd:BITS, with 2 to 8 bits")
        self.bits = int(argument)
        self.levels = 2 ** (self.bits - 1) - 1

    def layout(self, size: int) -> Layout:
        return {
            "norms": ((-(-size // BUCKET),), "float32"),
            "codes": ((-(-size * self.bits // 8),), "uint8"),
        }

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        size = vector.size
        padded = np.zeros((-(-size // BUCKET), BUCKET))
        padded.reshape(-1)[:size] = vector
        norms = np.linalg.norm(padded, axis=1).astype(np.float32)
        scaled = padded / np.where(norms, norms, 1)[:, None] * self.levels
        whole = np.clip(np.floor(scaled + rng.random(scaled.shape)), -self.levels, self.levels)
        codes = (whole.reshape(-1)[:size] + self.levels).astype(np.uint8)
        bits = np.unpackbits(codes[:, None], axis=1)[:, 8 - self.bits :]
        omega = min(BUCKET / self.levels**2, BUCKET**0.5 / self.levels) if self.feedback else 0.0
        return {"norms": norms / np.float32(1 + omega), "codes": np.packbits(bits)}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        bits = np.unpackbits(codes["codes"], count=size * self.bits).reshape(size, self.bits)
        whole = np.packbits(bits, axis=1).reshape(-1).astype(np.int64) >> (8 - self.bits)
        if (whole > 2 * self.levels).any() or (codes["norms"] < 0).any():
            raise ValueError("a code above the levels, or a norm below 0")
        norms = np.repeat(codes["norms"], BUCKET)[:size]
        return np.asarray(norms * (whole - self.levels) / self.levels, np.float32)

"""bfloat16: the upper half of a float32."""

import numpy as np
from numpy.typing import NDArray

from .base import Codec, Codes, Layout


class Bf16(Codec):
    """Every value in 16 bits, rounded to the nearest, ties to even."""

    def layout(self, size: int) -> Layout:
        return {"values": ((size,), "uint16")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        bits = np.ascontiguousarray(vector).view(np.uint32).astype(np.uint64)
        return {"values": ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        return (codes["values"].astype(np.uint32) << 16).view(np.float32)

"""bfloat16: the upper half of a float32."""

import numpy as np
from numpy.typing import NDArray

from ..bfloat16 import from_upper_halves, upper_halves
from .base import Codec, Codes, Layout


class Bf16(Codec):
    """Every value in 16 bits, rounded to the nearest, ties to even."""

    def layout(self, size: int) -> Layout:
        return {"values": ((size,), "uint16")}

    def encode(self, vector: NDArray[np.float32], rng: np.random.Generator) -> dict[str, NDArray]:
        return {"values": upper_halves(vector)}

    def decode(self, codes: Codes, size: int) -> NDArray[np.float32]:
        return from_upper_halves(codes["values"])

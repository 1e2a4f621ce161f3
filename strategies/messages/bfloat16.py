"""bfloat16: the upper halves of float32 numbers."""

import numpy as np
from numpy.typing import NDArray


def upper_halves(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return numbers rounded to the nearest of 16 bits, ties to even; finite ones stay finite, NaN is NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    down = (bits >> 16).astype(np.uint16)  # towards 0
    overflows = np.isfinite(values) & ((rounded & 0x7F80) == 0x7F80)
    return np.where(np.isnan(values), down | 0x40, np.where(overflows, down, rounded)).astype(np.uint16)


def from_upper_halves(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the float32 numbers of the same shape that `upper_halves` rounded to."""
    return (halves.astype(np.uint32) << 16).view(np.float32)

"""Numbers of which no clip is known, as words that add: statistics, counts, metrics.

A number is a whole one of 64 bits, over a scale, and travels as four words of 16 bits. The sum of up to 65535
clients' words fits a word of 32 bits, and so any modulus of a vector.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WORDS = 4
"""Of a number."""
BITS = 16
"""Of a word, before it is summed."""
MOST_CLIENTS = 2**BITS - 1
ZERO = 2**62
"""What is added to a whole number, so that it is not negative."""
LARGEST = 2.0**61
"""The largest whole number; larger ones are cut off."""
COUNT, METRIC, STATISTIC = 0, 20, 32
"""Bits after the point: of whole numbers below 2^61, of numbers below 2^41, and of those below 2^29."""


def words_of(numbers: NDArray[np.float64], scale: int) -> NDArray[np.uint64]:
    """Return the words of numbers, each the nearest that the scale has; `WORDS` a number.

    Parameters
    ----------
    numbers : NDArray[np.float64]
        Finite ones.
    scale : int
        How many bits are after the point.
    """
    whole = np.clip(np.rint(np.ldexp(numbers, scale)), -LARGEST, LARGEST).astype(np.int64) + ZERO
    words = [whole >> BITS * place & 2**BITS - 1 for place in range(WORDS)]
    return np.stack(words, axis=-1).reshape(-1).astype(np.uint64)


def sum_of(words: NDArray[np.unsignedinteger], scale: int, count: int) -> NDArray[np.float64]:
    """Return the sum of numbers from the sum of the words of so many clients."""
    parts = words.astype(np.int64).reshape(-1, WORDS)
    low = parts[:, 0] + (parts[:, 1] << BITS)
    high = parts[:, 2] + (parts[:, 3] << BITS) - count * (ZERO >> 2 * BITS)
    total: NDArray[np.float64] = np.ldexp(np.ldexp(high.astype(np.float64), 2 * BITS) + low, -scale)
    return total

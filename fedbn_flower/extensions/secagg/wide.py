"""Numbers of which no clip is known, as words that add: statistics, counts, metrics.

A whole number of 64 bits travels as four words of 16 bits. The sum of up to 65535 clients' words fits a word
of 32 bits, and so any modulus of a vector. Of other numbers the whole part travels so, and the fraction in
steps of 2^-60: all that a float64 has, unless it is below that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BITS = 16
"""Of a word, before it is summed."""
PLACES = 4
"""Words of a whole number."""
MOST_CLIENTS = 2**BITS - 1
ZERO = 2**62
"""What is added to a whole number, so that it is not negative."""
LARGEST = 2.0**61
"""The largest number that is summed."""
FRACTION = 60
"""Bits after the point of what is left of a number beside its whole part."""
COUNT, NUMBER = "count", "number"
WORDS = {COUNT: PLACES, NUMBER: 2 * PLACES}
"""Of a number of a kind."""


def check_room(numbers: NDArray[np.float64], name: str) -> None:
    """Refuse numbers of this name for which words have no room.

    Raises
    ------
    ValueError
        When one is not finite, or beyond `LARGEST`.
    """
    if not (np.abs(numbers) <= LARGEST).all():  # the number is not told: the server reads this
        raise ValueError(f"secagg: {name} is not finite, or beyond {LARGEST:.2g}: no sum has room for it")


def words_of(numbers: NDArray[np.float64], kind: str) -> NDArray[np.uint64]:
    """Return the words of numbers that `check_room` lets pass; of counts the nearest whole ones."""
    whole = np.rint(numbers)
    if kind == COUNT:
        return _words(whole)
    return np.concatenate([_words(whole), _words(np.rint(np.ldexp(numbers - whole, FRACTION)))])


def sum_of(words: NDArray[np.unsignedinteger], kind: str, clients: int) -> NDArray[np.float64]:
    """Return the sum of numbers from the sum of the words of so many clients."""
    if kind == COUNT:
        return _sum(words, clients)
    whole, left = np.split(words, 2)
    total: NDArray[np.float64] = _sum(whole, clients) + np.ldexp(_sum(left, clients), -FRACTION)
    return total


def _words(whole: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return the 16 bits in each place of whole numbers, from the lowest on: they lie so in memory."""
    return (whole.astype(np.int64) + ZERO).astype("<i8").view("<u2").astype(np.uint64)


def _sum(words: NDArray[np.unsignedinteger], clients: int) -> NDArray[np.float64]:
    parts = words.astype(np.int64).reshape(-1, PLACES)
    low = parts[:, 0] + (parts[:, 1] << BITS)
    high = parts[:, 2] + (parts[:, 3] << BITS) - clients * (ZERO >> 2 * BITS)
    total: NDArray[np.float64] = np.ldexp(high.astype(np.float64), 2 * BITS) + low
    return total

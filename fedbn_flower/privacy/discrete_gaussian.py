"""Discrete Gaussian noise, drawn exactly: no floating-point number decides anything.

``P[X = x]`` is proportional to ``exp(-x^2 / (2 s^2))`` over the integers x (Canonne, Kamath and Steinke 2020,
"The Discrete Gaussian for Differential Privacy", arXiv 2004.00010). Noise that floats approximate has gaps,
through which single results can be told apart (Mironov 2012); integers plus integers have none.

The algorithms 1 to 3 of the paper, over many numbers at once, for a whole s: all their probabilities are then
ratios of integers of 64 bits. Each needs uniform integers only, drawn by rejection and so without a bias.
A million numbers take half a second of one core, and no more memory than their own but for a block.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

STEPS = 2**20
"""s of a run: the deviation of its noise in steps of its grid."""
BLOCK = 2**15  # numbers that are drawn together

Integers = NDArray[np.int64]
Words = Callable[[int], NDArray[np.uint64]]
"""Returns so many words of 64 uniform random bits."""


def discrete_gaussian(words: Words, count: int, deviation: int = STEPS) -> Integers:
    """Return numbers from the discrete Gaussian N_Z(0, deviation^2) (algorithm 3).

    Parameters
    ----------
    words : Callable
        The random bits; a secret keystream if nobody is to know the noise.
    count : int
        How many numbers.
    deviation : int
        s, from 1 to 2^20. The numbers' own deviation is this up to ``exp(-2 pi^2 s^2)``.
    """
    found = np.empty(count, np.int64)
    done = 0
    while done < count:
        # |y| is below 2^31, whose square fits, but for a probability of exp(-2000).
        y = _discrete_laplace(words, min(count - done, BLOCK), deviation)
        y = y[_bernoulli_exp(words, (np.abs(y) - deviation) ** 2, 2 * deviation**2)]
        found[done : done + y.size] = y
        done += y.size
    return found


def _discrete_laplace(words: Words, count: int, scale: int) -> Integers:
    """Return at most ``count`` numbers with ``P[y]`` proportional to ``exp(-|y| / scale)`` (algorithm 2)."""
    rest = _below(words, count, scale)
    rest = rest[_bernoulli_exp(words, rest, scale)]
    whole = np.zeros(rest.size, np.int64)
    active = np.arange(rest.size)
    while active.size:
        active = active[_bernoulli_exp(words, np.full(active.size, scale), scale)]
        whole[active] += 1
    y = rest + scale * whole
    sign = 1 - 2 * _below(words, y.size, 2)
    return (sign * y)[(sign > 0) | (y > 0)]  # or 0 would be drawn twice as often


def _bernoulli_exp(words: Words, numerators: Integers, denominator: int) -> NDArray[np.bool_]:
    """Return True with probability ``exp(-numerator / denominator)`` each, for any numerators >= 0."""
    whole, rest = np.divmod(numerators, denominator)
    found = _bernoulli_exp_of_fraction(words, rest, denominator)
    active = np.flatnonzero(found & (whole > 0))
    while active.size:
        one = _bernoulli_exp_of_fraction(words, np.full(active.size, denominator), denominator)
        found[active[~one]] = False
        whole[active] -= 1
        active = active[one & (whole[active] > 0)]
    return found


def _bernoulli_exp_of_fraction(words: Words, numerators: Integers, denominator: int) -> NDArray[np.bool_]:
    """As `_bernoulli_exp`, for numerators up to the denominator (algorithm 1).

    Of events with the probabilities g, g/2, g/3, ..., an odd number comes up to the first that fails with
    probability ``1 - g + g^2/2! - ... = exp(-g)``.
    """
    found = np.empty(numerators.size, bool)
    active, k = np.arange(numerators.size), 1
    while active.size:
        happens = _below(words, active.size, denominator * k) < numerators[active]
        found[active[~happens]] = k % 2 == 1
        active, k = active[happens], k + 1
    return found


def _below(words: Words, count: int, bound: int) -> Integers:
    """Return uniform integers in [0, bound): as many bits as these need, drawn again if not below."""
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    values = words(count) & mask
    while (again := np.flatnonzero(values >= bound)).size:
        values[again] = words(again.size) & mask
    return values.view(np.int64)

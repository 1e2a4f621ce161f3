"""Discrete Gaussian noise, drawn exactly: no floating-point number decides anything.

``P[X = x]`` is proportional to ``exp(-x^2 / (2 s^2))`` over the integers x (Canonne, Kamath and Steinke 2020,
"The Discrete Gaussian for Differential Privacy", arXiv 2004.00010). Noise that floats approximate has gaps,
through which single results can be told apart (Mironov 2012); integers plus integers have none.

The algorithms 1 to 3 of the paper, over many numbers at once, for a whole s: all their probabilities are then
ratios of integers of 64 bits. Each needs uniform integers only, drawn by rejection and so without a bias.
A million numbers take half a second of one core, and no more memory than their own but for a block.

Noise of rounds that cancels in their sum: banded matrix factorisation (DP-FTRL).

Choquette-Choo et al. 2023 (arXiv 2306.08153), with the banded square root of the prefix sums of Kalinin and
Lampert 2024 (2405.13763). The noise of round t is ``z C (M^-1 Z)_t``, where Z has independent rows N(0, I).
M is lower triangular with ``M_ij ~ c_(i-j)``, ``c_k = binom(2k, k) / 4^k`` for k < b. Its columns have
length 1.

It goes with ``cyclic``: b or more groups take turns. The rounds of a client are at least b apart, and their
columns of M have no row in common. The sum of k such columns has length sqrt(k), so a client costs
what k Gaussians cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

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


def members(server_round: int, groups: int, partitions: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return which partitions take part in a round: those whose id is round - 1 modulo ``groups``.

    A group depends neither on any data nor on who is connected.
    """
    return np.asarray(partitions % groups == (server_round - 1) % groups)


def square_root(bands: int) -> NDArray[np.float64]:
    """Return c_0 ... c_(b-1), the first coefficients of ``(1 - x)^(-1/2)``."""
    k = np.arange(1, bands)
    return np.concatenate([[1.0], np.cumprod(1 - 0.5 / k)])


@dataclass(frozen=True)
class CorrelatedNoise:
    """The factorisation of one run.

    Parameters
    ----------
    rounds : int
        T, the number of rounds.
    bands : int
        b, over how many rounds noise is correlated; 1 for independent noise.
    """

    rounds: int
    bands: int

    @cached_property
    def _coefficients(self) -> NDArray[np.float64]:
        return square_root(self.bands)

    @cached_property
    def _lengths(self) -> NDArray[np.float64]:
        """The lengths of the columns before they are normalised, (rounds,): the last ones are cut off."""
        kept = np.minimum(self.bands, self.rounds - np.arange(self.rounds))
        return np.asarray(np.sqrt(np.cumsum(self._coefficients**2))[kept - 1])

    @cached_property
    def deviations(self) -> NDArray[np.float64]:
        """The deviation of each round's noise over that of independent noise, (rounds,)."""
        lengths, earlier = np.empty(self.rounds), list[NDArray[np.floating]]()
        for t, unit in enumerate(np.eye(self.rounds), 1):
            row, earlier = self.correlate(t, unit, earlier)
            lengths[t - 1] = np.linalg.norm(row)
        return lengths

    def entry(self, row: int, column: int) -> float:
        """Return M_ij, counted from 0, for 0 <= i - j < b."""
        return float(self._coefficients[row - column] / self._lengths[column])

    def correlate(
        self, server_round: int, fresh: NDArray[np.floating], earlier: Sequence[NDArray[np.floating]]
    ) -> tuple[NDArray[np.floating], list[NDArray[np.floating]]]:
        """Return a round's noise, and what the next round needs as ``earlier``.

        Forward substitution: ``x_t = (z_t - sum_j M_tj x_j) / M_tt``. At most b - 1 vectors are kept. They
        are the whole state, and are not to be changed.

        Parameters
        ----------
        server_round : int
            t, from 1 on.
        fresh : NDArray
            Z_t, (d,): independent noise. It becomes the result, in place.
        earlier : Sequence[NDArray]
            The noise of the rounds before, latest first; empty in round 1.

        Raises
        ------
        ValueError
            When ``earlier`` is not of the round before.
        """
        row = server_round - 1
        if len(earlier) != min(row, self.bands - 1):
            raise ValueError(
                f"round {server_round} needs {min(row, self.bands - 1)} vectors, not {len(earlier)}"
            )
        for distance, vector in enumerate(earlier, 1):
            fresh -= self.entry(row, row - distance) * vector
        fresh /= self.entry(row, row)
        return fresh, [fresh, *earlier][: self.bands - 1]

"""Noise of rounds that cancels in their sum: banded matrix factorisation (DP-FTRL).

Choquette-Choo et al. 2023 (arXiv 2306.08153), with the banded square root of the prefix sums of Kalinin and
Lampert 2024 (2405.13763). The noise of round t is ``z C (M^-1 Z)_t``, where Z has independent rows N(0, I).
M is lower triangular with ``M_ij ~ c_(i-j)``, ``c_k = binom(2k, k) / 4^k`` for k < b. Its columns have
length 1.

It goes with ``cyclic``: b or more groups take turns. The rounds of a client are at least b apart, and their
columns of M have no row in common. The sum of k such columns has length sqrt(k), so a client costs
what k Gaussians cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


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

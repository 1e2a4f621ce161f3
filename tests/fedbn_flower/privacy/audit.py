"""What epsilon is at least, by an attack: an audit in one run.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run" (arXiv 2305.08846), theorem
5.2. Each of m canaries is in the run with probability 1/2. Of r guesses whether a canary was in, v are right.
Where epsilon and delta hold, so many are right with probability

    P[B >= v] + 2 m delta max_i (P[B >= v - i] - P[B >= v]) / i,   B ~ Bin(r, 1 / (1 + exp(-epsilon)))

at most, over 1 <= i <= m. An epsilon for which this is small is refuted.
"""

import numpy as np
from numpy.typing import NDArray

LARGEST = 100.0
"""The greatest epsilon that can be refuted."""


def lower_bound(
    canaries: int, guesses: int, right: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Return the greatest epsilon that the guesses refute with this confidence; 0 if none.

    Of m canaries r guesses are made, of which v are ``right``; epsilon is claimed for delta.
    """
    refuted, allowed = 0.0, LARGEST
    if _probability(canaries, guesses, right, delta, 0.0) > 1 - confidence:
        return 0.0
    for _ in range(60):
        middle = (refuted + allowed) / 2
        if _probability(canaries, guesses, right, delta, middle) <= 1 - confidence:
            refuted = middle
        else:
            allowed = middle
    return refuted


def guess(scores: NDArray[np.floating], guesses: int) -> NDArray[np.int8]:
    """Return 1 for the greatest half of the guesses (in), -1 for the smallest half (out), 0 otherwise."""
    order = np.argsort(scores, kind="stable")
    guessed = np.zeros(len(scores), np.int8)
    guessed[order[: guesses // 2]] = -1
    guessed[order[len(order) - (guesses - guesses // 2) :]] = 1
    return guessed


def audited(
    scores: NDArray[np.floating], inside: NDArray[np.bool_], guesses: int, delta: float = 0.0
) -> float:
    """Return the `lower_bound` of guesses by scores, which are greater for canaries that were in.

    ``scores`` and ``inside`` are of shape (m,). A canary that sends C u has the score ``sum_t <D_t, u>``.
    """
    guessed = guess(scores, guesses)
    right = np.count_nonzero(guessed == np.where(inside, 1, -1))
    return lower_bound(len(scores), guesses, int(right), delta)


def _probability(canaries: int, guesses: int, right: int, delta: float, epsilon: float) -> float:
    """Return the bound of the module's docstring."""
    from scipy.stats import binom

    hit = 1 / (1 + np.exp(-epsilon))
    by_chance = float(binom.sf(right - 1, guesses, hit))
    if not delta:
        return by_chance
    i = np.arange(1, canaries + 1)
    gained = (binom.sf(right - i - 1, guesses, hit) - by_chance) / i
    return by_chance + 2 * canaries * delta * float(gained.max())

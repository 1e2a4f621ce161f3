"""A test of calibration by the expected calibration error (ECE), which is above 0 of any model.

The mean over bins of how far shares lie from probabilities is biased upwards: shares of few cases lie apart
from any probability. So it has no interval, but is compared with that of a calibrated model: J. Bröcker and
L. Smith, Increasing the reliability of reliability diagrams, Weather and Forecasting 22(3), 2007.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cases import Cases
from .intervals import DRAWS, LEVEL

CASES_AT_A_TIME = 4_000_000


class Calibration(NamedTuple):
    """The ECE, what it would be on the same cases if the model were calibrated, and the p-value of that."""

    ece: float
    expected: float
    """The mean of a calibrated model's."""
    most: float
    """The quantile of a calibrated model's, by default that of 95 %."""
    p_value: float


def calibration_test(
    cases: Cases, bins: int, seed: int = 0, draws: int = DRAWS, level: float = LEVEL
) -> Calibration:
    """Return the ECE over equal bins, and that of outcomes drawn with the predicted probabilities.

    Of two classes the probability is that of class 1, of several the greatest, and the outcome whether that
    class is right. Cases of a group have one random number, so that they are as alike as their probabilities
    allow: with groups the test is conservative.

    Parameters
    ----------
    cases : Cases
        The cases, whose scores are probabilities.
    bins : int
        Into how many parts the probabilities are divided; a bin includes its upper end.
    seed : int
        Of the draws.
    draws : int
        How many draws.
    level : float
        Of `Calibration.most`.
    """
    scores, hits = cases.scores, cases.targets
    if scores.ndim == 2 and scores.shape[1] == 2:
        scores = scores[:, 1]
    elif scores.ndim == 2:
        scores, hits = scores.max(axis=1), scores.argmax(axis=1) == cases.targets
    edges = np.linspace(0, 1, bins + 1)[1:-1]
    member = np.eye(bins)[np.searchsorted(edges, scores)]
    codes = np.unique(cases.in_groups, return_inverse=True)[1]
    rng = np.random.default_rng(seed)

    def ece(outcomes: NDArray) -> NDArray[np.float64]:
        return np.asarray(np.abs((outcomes - scores) @ member).sum(axis=1) / len(scores))

    found = float(ece(np.asarray(hits, np.float64)[None])[0])
    rows = max(1, CASES_AT_A_TIME // len(scores))
    drawn = np.concatenate(
        [
            ece(rng.random((min(rows, draws - start), codes.max() + 1))[:, codes] < scores)
            for start in range(0, draws, rows)
        ]
    )
    beyond = 1 + int((drawn >= found - 1e-12).sum())
    return Calibration(found, float(drawn.mean()), float(np.quantile(drawn, level)), beyond / (1 + draws))

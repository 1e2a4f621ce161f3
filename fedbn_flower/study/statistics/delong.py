"""DeLong's covariance of AUROCs, of cases that may be in groups.

E. DeLong, D. DeLong and D. Clarke-Pearson: Comparing the areas under two or more correlated receiver
operating characteristic curves: a nonparametric approach. Biometrics 44(3), 1988. By midranks as in X. Sun
and W. Xu: Fast implementation of DeLong's algorithm for comparing the areas under correlated receiver
operating characteristic curves. IEEE Signal Processing Letters 21(11), 2014. Cases in groups as in
N. Obuchowski: Nonparametric analysis of clustered ROC curve data. Biometrics 53(2), 1997; where each group is
one case, it is DeLong's.

Tests go by Student's t with as many degrees of freedom as E. Brunner and U. Munzel have (The
nonparametric Behrens-Fisher problem: asymptotic theory and a small-sample approximation. Biometrical Journal
42(1), 2000), whose variance is DeLong's: with few positive cases the normal distribution is too narrow.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Aurocs:
    """AUROCs of k models on the same cases, and what their covariance is the sum of.

    Parameters
    ----------
    areas : NDArray[np.float64]
        The AUROCs, (k,); NaN without positive or negative cases.
    parts : NDArray[np.float64]
        The covariance from positive cases, from negative ones, and from groups that have both, (3, k, k); NaN
        with fewer than two groups with positive, or with negative, cases.
    groups : tuple[int, int]
        How many groups have positive cases, and negative ones.
    most : tuple[float, float]
        The squares of the groups' positive cases, summed, over the square of their sum; and of negative ones.
    """

    areas: NDArray[np.float64]
    parts: NDArray[np.float64]
    groups: tuple[int, int]
    most: tuple[float, float]

    @property
    def covariance(self) -> NDArray[np.float64]:
        """The covariance of the areas, (k, k)."""
        return np.asarray(self.parts.sum(axis=0))

    def error(self, contrast: ArrayLike = (1.0,)) -> tuple[float, float]:
        """Return the standard error of a sum of the areas, weighted by (k,), and its degrees of freedom."""
        weights = np.asarray(contrast, np.float64)
        positive, negative, both = (float(weights @ part @ weights) for part in self.parts)
        variance = max(positive + negative + both, 0.0) if not np.isnan(self.parts).any() else float("nan")
        spent = sum(
            of**2 / (number - 1)
            for of, number in zip((positive, negative), self.groups, strict=True)
            if number > 1
        )
        return float(np.sqrt(variance)), (positive + negative) ** 2 / spent if spent else float("inf")


def aurocs(positive: ArrayLike, scores: ArrayLike, groups: ArrayLike | None = None) -> Aurocs:
    """Return the AUROC of each row of scores.

    Parameters
    ----------
    positive : ArrayLike
        Which cases are positive, (n,).
    scores : ArrayLike
        The scores of each of k models, (k, n).
    groups : ArrayLike, optional
        The group of each case, int (n,); each case by itself by default.
    """
    from scipy.stats import rankdata

    truth, table = np.asarray(positive, bool), np.atleast_2d(np.asarray(scores, np.float64))
    codes = np.arange(len(truth)) if groups is None else np.unique(groups, return_inverse=True)[1]
    sizes = [np.bincount(codes[which]) for which in (truth, ~truth)]
    numbers = [int(np.count_nonzero(size)) for size in sizes]
    most = [float((size**2).sum() / max(1, size.sum() ** 2)) for size in sizes]
    m, n = int(truth.sum()), int((~truth).sum())
    if not m or not n:
        nothing = np.full((4, len(table), len(table)), np.nan)
        return Aurocs(nothing[0, 0], nothing[1:], (numbers[0], numbers[1]), (most[0], most[1]))
    ranks = rankdata(table, axis=1)
    v10 = (ranks[:, truth] - rankdata(table[:, truth], axis=1)) / n
    v01 = 1 - (ranks[:, ~truth] - rankdata(table[:, ~truth], axis=1)) / m
    areas = v10.mean(axis=1)
    total = int(codes.max()) + 1
    of_positive, of_negative = (
        np.stack([np.bincount(codes[which], row, total) for row in values - areas[:, None]])
        for which, values in ((truth, v10), (~truth, v01))
    )
    both = of_positive @ of_negative.T
    parts = [
        _unbiased(numbers[0]) * of_positive @ of_positive.T / m**2,
        _unbiased(numbers[1]) * of_negative @ of_negative.T / n**2,
        _unbiased(total) * (both + both.T) / (m * n),
    ]
    return Aurocs(areas, np.stack(parts), (numbers[0], numbers[1]), (most[0], most[1]))


def _unbiased(groups: int) -> float:
    return groups / (groups - 1) if groups > 1 else float("nan")

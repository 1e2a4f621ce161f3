"""DeLong's covariance of AUROCs, of cases that may be in groups.

E. DeLong, D. DeLong and D. Clarke-Pearson: Comparing the areas under two or more correlated receiver
operating characteristic curves: a nonparametric approach. Biometrics 44(3), 1988. By midranks as in X. Sun
and W. Xu: Fast implementation of DeLong's algorithm for comparing the areas under correlated receiver
operating characteristic curves. IEEE Signal Processing Letters 21(11), 2014. Cases in groups as in
N. Obuchowski: Nonparametric analysis of clustered ROC curve data. Biometrics 53(2), 1997; where each group is
one case, it is DeLong's.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def aurocs(
    positive: ArrayLike, scores: ArrayLike, groups: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the AUROC of each row of scores and their covariance.

    Parameters
    ----------
    positive : ArrayLike
        Which cases are positive, (n,).
    scores : ArrayLike
        The scores of each of k models, (k, n).
    groups : ArrayLike, optional
        The group of each case, int (n,); each case by itself by default.

    Returns
    -------
    tuple
        float64 (k,) and (k, k). The AUROC is NaN without positive or negative cases, the covariance with
        fewer than two groups of either.
    """
    from scipy.stats import rankdata

    truth, table = np.asarray(positive, bool), np.atleast_2d(np.asarray(scores, np.float64))
    m, n = int(truth.sum()), int((~truth).sum())
    if not m or not n:
        return np.full(len(table), np.nan), np.full((len(table), len(table)), np.nan)
    ranks = rankdata(table, axis=1)
    v10 = (ranks[:, truth] - rankdata(table[:, truth], axis=1)) / n
    v01 = 1 - (ranks[:, ~truth] - rankdata(table[:, ~truth], axis=1)) / m
    areas = v10.mean(axis=1)
    codes = np.arange(len(truth)) if groups is None else np.unique(groups, return_inverse=True)[1]
    number = int(codes.max()) + 1
    of_positive, of_negative = (
        np.stack([np.bincount(codes[which], row, number) for row in part - areas[:, None]])
        for which, part in ((truth, v10), (~truth, v01))
    )
    factors = [_of_groups(codes[truth]), _of_groups(codes[~truth]), _of_groups(codes)]
    both = of_positive @ of_negative.T
    return areas, np.asarray(
        factors[0] * of_positive @ of_positive.T / m**2
        + factors[1] * of_negative @ of_negative.T / n**2
        + factors[2] * (both + both.T) / (m * n)
    )


def _of_groups(codes: NDArray) -> float:
    """Return I / (I - 1) of I groups; NaN of one."""
    number = len(np.unique(codes))
    return number / (number - 1) if number > 1 else float("nan")

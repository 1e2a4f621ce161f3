"""How evenly a metric is spread over clients: Jain's index."""

import numpy as np
from numpy.typing import ArrayLike


def jain(values: ArrayLike) -> float | None:
    """Return Jain's index ``(sum_i x_i)^2 / (n sum_i x_i^2)``: 1 if all are equal, 1/n if all but one are 0.

    R. Jain, D. Chiu and W. Hawe: A Quantitative Measure of Fairness and Discrimination for Resource
    Allocation in Shared Computer Systems. DEC-TR-301, 1984.

    Parameters
    ----------
    values : ArrayLike
        The value of each client, (n,).

    Returns
    -------
    float or None
        None without values, or with one that is negative or not finite: there the index says nothing.
    """
    x = np.asarray(values, np.float64)
    if not len(x) or not np.isfinite(x).all() or (x < 0).any():
        return None
    if not (greatest := x.max()):
        return 1.0
    x = x / greatest  # of tiny values the squares would be 0
    return float(min(x.sum() ** 2 / (len(x) * (x**2).sum()), 1.0))

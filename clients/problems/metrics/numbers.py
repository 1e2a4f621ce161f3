"""Metrics of predicted numbers: functions of float64 sums. The metric is the mean over the numbers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...modules.lazy_torch import torch
from .base import NUMBERS, Metric, other_count

COUNT, SUM, SQUARES, ERRORS = range(4)


class OfNumbers(Metric):
    """A function of float64 (4, size): n, sum of y, sum of y^2, sum of (y - prediction)^2."""

    kinds = frozenset({NUMBERS})
    state = "moments"

    def batch(self, scores: torch.Tensor, targets: torch.Tensor) -> NDArray:
        rows = (torch.ones_like(targets), targets, targets.square(), (targets - scores).square())
        return torch.stack([row.sum(0) for row in rows]).numpy()

    def misfit(self, state: NDArray, predictions: float) -> str:
        total, squares, errors = state[SUM], state[SQUARES], state[ERRORS]
        if (squares < 0).any() or (errors < 0).any() or (total**2 > predictions * squares * (1 + 1e-9)).any():
            return "no numbers have such sums"
        return other_count(state[COUNT], predictions) or super().misfit(state, predictions)


class R2(OfNumbers):
    """Coefficient of determination, 1 - sum (y - prediction)^2 / sum (y - mean)^2; none if y is constant."""

    range = (-math.inf, 1.0)

    def values(self, total: NDArray) -> NDArray[np.float64]:
        spread = total[SQUARES] - total[SUM] ** 2 / total[COUNT]
        constant = spread <= 1e-12 * total[SQUARES]  # rounding of the difference
        return np.where(constant, np.nan, 1 - total[ERRORS] / spread)


class Rmse(OfNumbers):
    """Root of the mean squared error."""

    higher_is_better = False
    range = (0.0, math.inf)

    def values(self, total: NDArray) -> NDArray[np.float64]:
        return np.asarray(np.sqrt(total[ERRORS] / total[COUNT]))

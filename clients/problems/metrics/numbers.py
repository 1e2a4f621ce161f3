"""Metrics of predicted numbers: functions of sums that add. The metric is the mean over the numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...modules.lazy_torch import torch
from .base import NUMBERS, Metric, other_count

COUNT, ERRORS = range(2)
LEAST, BITS = -160, 24
"""Exponent of the smallest unit of a sum of y, and the bits of a digit; a sum of y^2 has twice the exponent.

A digit of half a billion examples is exact in float64, and so is every float32 from 2^-149 to 2^128.
"""
SPLITS = 2.0**27 + 1
"""Splits a float64 into two halves, products of which are exact: Dekker 1971."""
OF_SUM, OF_SQUARES = 14, 27
"""How many digits the sums have."""


class OfNumbers(Metric):
    """A function of float64 (43, size): n, sum of (y - prediction)^2, digits of sum y and of sum y^2.

    If the deviation of y is small compared with its mean (years, Unix seconds), ``sum y^2 - (sum y)^2 / n``
    of rounded sums is nothing but rounding error. So both sums are exact: integers in a fixed unit, whose
    digits add.
    """

    kinds = frozenset({NUMBERS})
    state = "moments"

    def batch(self, scores: torch.Tensor, targets: torch.Tensor) -> NDArray:
        count, errors = torch.ones_like(targets).sum(0), (targets - scores).square().sum(0)
        y = targets.numpy()
        scaled = SPLITS * y
        high = scaled - (scaled - y)
        low = y - high
        squares = np.concatenate([high * high, 2 * high * low, low * low])
        return np.concatenate(
            [
                torch.stack([count, errors]).numpy(),
                _digits(y, LEAST, OF_SUM),
                _digits(squares, 2 * LEAST, OF_SQUARES),
            ]
        )

    def misfit(self, state: NDArray, predictions: float) -> str:
        digits = state[ERRORS + 1 :]
        most = 3 * 2.0**BITS * predictions  # a square is the sum of three products
        whole = bool(((np.abs(digits) <= most) & (digits % 1 == 0)).all())
        if not whole or (state[ERRORS] < 0).any() or any(_spread(column) < 0 for column in state.T):
            return "no numbers have such sums"
        return other_count(state[COUNT], predictions) or super().misfit(state, predictions)


class R2(OfNumbers):
    """Coefficient of determination, 1 - sum (y - prediction)^2 / sum (y - mean)^2; none if y is constant."""

    range = (-math.inf, 1.0)

    def values(self, total: NDArray) -> NDArray[np.float64]:
        spread = np.array([_spread(column) for column in total.T])
        return np.where(spread > 0, 1 - total[ERRORS] / spread, np.nan)


class Rmse(OfNumbers):
    """Root of the mean squared error."""

    higher_is_better = False
    range = (0.0, math.inf)

    def values(self, total: NDArray) -> NDArray[np.float64]:
        return np.asarray(np.sqrt(total[ERRORS] / total[COUNT]))


def _digits(values: NDArray[np.float64], least: int, count: int) -> NDArray[np.float64]:
    """Return the digits of the sum of values, (n, size), as float64 (count, size), the highest first.

    Each is a whole number of units 2^least * 2^(24 i), with the sign of what it counts.
    """
    digits = np.zeros((count, values.shape[1]))
    rest = values
    for i in reversed(range(count)):
        unit = 2.0 ** (least + BITS * i)
        if np.abs(rest).max(initial=0.0) >= unit:
            part = np.trunc(rest / unit)
            rest = rest - part * unit  # exact: both have the same last bit
            digits[count - 1 - i] = part.sum(0)
    return digits


def _spread(column: NDArray[np.float64]) -> float:
    """Return ``sum (y - mean)^2`` of a number's state, rounded once; NaN where no examples have it."""
    if not (np.isfinite(column).all() and column[COUNT] >= 1):
        return math.nan
    n = int(column[COUNT])
    first, second = (_whole(digits) for digits in np.split(column[ERRORS + 1 :], [OF_SUM]))
    try:
        return float(Fraction(n * second - first**2, n << -2 * LEAST))
    except OverflowError:  # of a state that no examples have
        return math.nan


def _whole(digits: NDArray[np.float64]) -> int:
    """Return the whole number of digits, the highest first."""
    found = 0
    for digit in digits.tolist():
        found = (found << BITS) + int(digit)
    return found

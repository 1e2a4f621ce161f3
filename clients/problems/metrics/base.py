"""The base of every metric: a state that adds, a function of the sum, a direction."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ...modules.lazy_torch import torch

CLASSES, LABELS, NUMBERS = "classes", "labels", "numbers"
ROUNDING = 1e-6
"""Of values, and relative of counts: float32 counts the pixels of large volumes to that."""


def other_count(counts: NDArray, predictions: float) -> str:
    """Return a reason if some count is not the number of predictions; "" if all are."""
    others = counts[np.abs(counts - predictions) > ROUNDING * predictions]
    return f"it is of {others[0]:.16g} predictions, not of {predictions:.16g}" if len(others) else ""


@dataclass(frozen=True)
class Predicted:
    """The form of a prediction.

    Parameters
    ----------
    kind : str
        ``classes`` (one of several), ``labels`` (each yes or no) or ``numbers``.
    size : int
        How many classes, labels or numbers.
    thresholds : int
        How many thresholds the curves of scores have.
    background : bool
        Whether class 0 is the background, which metrics of the confusion matrix leave out.
    """

    kind: str
    size: int
    thresholds: int = 1000
    background: bool = False

    @property
    def binary(self) -> bool:
        """Whether there are two classes, of which class 1 is the positive one."""
        return self.kind == CLASSES and self.size == 2

    def nothing(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scores and targets of no example; see `Metric.batch`."""
        shape = (0,) if self.kind == CLASSES else (0, self.size)
        dtype = torch.float64 if self.kind == NUMBERS else torch.int64
        return torch.empty(0, self.size, dtype=torch.float64), torch.empty(shape, dtype=dtype)


class Metric:
    """A metric of held-out examples, exact however the examples are divided among clients.

    Each batch has a state. States add, over batches, workers and clients. The metric is a function of the
    sum, and so that of all examples in one place::

        class Brier(Metric):
            \"""Mean squared error of the probabilities of the classes.\"""

            higher_is_better = False
            kinds = frozenset({"classes"})

            def batch(self, scores, targets):
                errors = scores - torch.nn.functional.one_hot(targets, self.predicted.size)
                return np.array([float(errors.square().sum()), len(scores)])

            def values(self, total):
                return total[:1] / total[1]

    Parameters
    ----------
    predicted : Predicted
        What is predicted.
    argument : str
        The text after a colon in the name, such as 0.95 in ``sensitivity-at:0.95``.

    Raises
    ------
    ValueError
        When the argument is not allowed; the message says what is.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({CLASSES, LABELS})
    """The kinds of predictions (see `Predicted`) that it is a metric of."""
    higher_is_better: bool = True
    range: tuple[float, float] = (0.0, 1.0)
    """The least and the greatest value; infinite if there is none."""
    has_interval: bool = True
    """False if it is biased in small samples, so that no interval of it holds."""
    state: str = ""
    """The state's name: metrics whose states have one name share the state. By default it has its own."""
    by: tuple[str, ...] = ()
    """The names of the classes, labels or numbers whose `values` are columns of their own; see `columns`."""

    def __init__(self, predicted: Predicted, argument: str = "") -> None:
        self.predicted = predicted
        if argument:
            raise ValueError("no argument")

    def batch(self, scores: torch.Tensor, targets: torch.Tensor) -> NDArray:
        """Return the state of a batch: counts (int64) or sums (float64), of the same shape for every batch.

        Parameters
        ----------
        scores : Tensor
            float64, shape (n, size), on the CPU: probabilities of the classes or labels; the predicted
            numbers.
        targets : Tensor
            Class numbers, int64 (n,); labels 0 or 1, int64 (n, size); numbers, float64 (n, size).
        """
        raise NotImplementedError

    def zeros(self) -> NDArray:
        """Return the state of no example."""
        return self.batch(*self.predicted.nothing())

    def values(self, total: NDArray) -> NDArray[np.float64]:
        """Return the metric by class, label or number, float64 (k,), of a sum of states; NaN if undefined."""
        raise NotImplementedError

    def value(self, total: NDArray) -> float:
        """Return the mean of the defined `values`; NaN if there is none."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return mean_of_defined(np.atleast_1d(self.values(total)))

    def misfit(self, state: NDArray, predictions: float) -> str:
        """Return why this cannot be the state of so many predictions; "" if it can.

        A state comes from a client, which may send any numbers. By default each value must be in the range.
        """
        with np.errstate(all="ignore"):
            values = np.atleast_1d(self.values(state))
        low, high = self.range
        outside = values[(values < low - ROUNDING) | (values > high + ROUNDING)]
        return f"its value is {outside[0]:.4g}, not in [{low:g}, {high:g}]" if len(outside) else ""

    def by_class(self, names: Sequence[str]) -> Self:
        """Return this metric with a column for each of the names, if it has a value for each; else itself.

        Of two classes, a metric that is that of class 1 has one value, and so no further column.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            count = np.atleast_1d(self.values(self.zeros())).size
        if count != len(names) or count == 1:
            return self
        metric = copy(self)
        metric.by = tuple(names)
        return metric

    def columns(self, name: str) -> list[str]:
        """Return the names of its values: its own, and ``NAME-CLASS`` for each of `by`."""
        return [name, *(f"{name}-{one}" for one in self.by)]

    def by_column(self, name: str, total: NDArray) -> dict[str, float]:
        """Return the values of a sum of states by the names of `columns`; NaN for the undefined ones."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.in_columns(name, np.atleast_1d(self.values(total)))

    def in_columns(self, name: str, values: NDArray[np.float64]) -> dict[str, float]:
        """Return values by class, (k,), and their mean, by the names of `columns`."""
        found = [mean_of_defined(values), *(values.tolist() if self.by else [])]
        return dict(zip(self.columns(name), found, strict=True))


def mean_of_defined(values: NDArray[np.float64]) -> float:
    """Return the mean of the values that are not NaN; NaN if all are."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")

"""Metrics of cases that have weights: what a bootstrap asks for, for many draws at once."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cases import Cases

Values = Callable[[Cases], NDArray]
"""A number for each case, (n,)."""
BLOCK = 256
"""Cases whose states are added at a time."""


class CaseMetric:
    """A metric of cases, each of which counts as often as its weight says."""

    bounds: tuple[float, float] = (0.0, 1.0)
    """The least and the greatest value that it can have; infinite if there is none."""
    of_classes: bool = False
    """Whether it goes by the cases of each class, so that it is known no better than the rarest one."""
    has_interval: bool = True
    """False if it is biased in small samples, so that no interval of it holds."""

    def __call__(self, cases: Cases, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the metric for each row of weights, (draws, n), as (draws,); NaN where it is undefined."""
        raise NotImplementedError

    def value(self, cases: Cases) -> float:
        """Return the metric of the cases as they are; NaN where it is undefined."""
        return float(self(cases, np.ones((1, len(cases))))[0])


class Mean(CaseMetric):
    """``sum_i w_i v_i / sum_i w_i`` over the cases that count: one product of matrices for all draws.

    Parameters
    ----------
    values : Values
        The value v of each case, such as its squared error.
    of : Values, optional
        Which cases count, such as the positive ones; all by default.
    bounds : tuple[float, float]
        See `CaseMetric.bounds`.
    of_classes : bool
        See `CaseMetric.of_classes`.
    """

    def __init__(
        self,
        values: Values,
        of: Values | None = None,
        bounds: tuple[float, float] = (0.0, 1.0),
        of_classes: bool = False,
    ) -> None:
        self.values, self.of, self.bounds, self.of_classes = values, of, bounds, of_classes

    def arrays(self, cases: Cases) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the values, float64 (n,), and which cases count, bool (n,)."""
        counts = np.ones(len(cases), bool) if self.of is None else np.asarray(self.of(cases), bool)
        return np.where(counts, self.values(cases), 0.0), counts

    def __call__(self, cases: Cases, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = weights @ np.stack(self.arrays(cases), axis=1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            return np.asarray(sums[:, 0] / sums[:, 1])


class Share(Mean):
    """The share of cases of which something is true, of those that count."""


class Auroc(CaseMetric):
    """Area under the ROC curve, ties count one half; of several classes the mean of one against the rest.

    The mean is over the classes for which it is defined. Of two classes it is that of class 1.

    Parameters
    ----------
    edges : NDArray[np.float64], optional
        Ascending scores: cases between the same two of them count as ties, as in a run's histograms.
    """

    of_classes = True

    def __init__(self, edges: NDArray[np.float64] | None = None) -> None:
        self.edges = edges

    def pairs(self, cases: Cases) -> list[tuple[NDArray[np.bool_], NDArray[np.float64]]]:
        """Return `one_against_the_rest`, with the number of its bin for a score if there are edges."""
        found = one_against_the_rest(cases)
        if self.edges is None:
            return found
        return [(truth, np.searchsorted(self.edges, s, "right").astype(np.float64)) for truth, s in found]

    def __call__(self, cases: Cases, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return mean_of_defined(np.stack([_auroc(*pair, weights) for pair in self.pairs(cases)]))


def mean_of_defined(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each column, (draws,), of (sites or classes, draws), over its values but NaN."""
    defined = ~np.isnan(table)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(defined, table, 0).sum(axis=0) / defined.sum(axis=0))


def one_against_the_rest(cases: Cases) -> list[tuple[NDArray[np.bool_], NDArray[np.float64]]]:
    """Return for each class, or for class 1 of two, which cases are of it, (n,), and its scores, (n,)."""
    if cases.scores.ndim == 1:
        return [(cases.targets == 1, cases.scores)]
    number = cases.scores.shape[1]
    return [(cases.targets == c, cases.scores[:, c]) for c in range(1 if number == 2 else 0, number)]


def _auroc(
    positive: NDArray[np.bool_], scores: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return ``sum_i p_i (sum_j<i n_j + n_i / 2) / (P N)`` over the distinct scores in ascending order.

    p_i and n_i are the weights of the positive and negative cases with the i-th score, P and N their sums.
    It is NaN where a score is.
    """
    if np.isnan(scores).any():
        return np.full(len(weights), np.nan)
    order = np.argsort(scores)
    first = np.flatnonzero(np.append(True, np.diff(scores[order]) > 0))
    every, positives = weights[:, order], (weights * positive)[:, order]
    if len(first) < len(order):
        every, positives = (np.add.reduceat(part, first, axis=1) for part in (every, positives))
    negatives = every - positives
    below = np.cumsum(negatives, axis=1)
    pairs = positives.sum(axis=1) * below[:, -1]
    below -= negatives / 2
    with np.errstate(invalid="ignore"):
        return np.asarray(np.einsum("ij,ij->i", positives, below) / pairs)


class ByFunction(CaseMetric):
    """Any ``function(targets, scores, sample_weight=weights)``, as scikit-learn has them, draw by draw.

    Where it raises a ValueError, as without cases of a class, the metric is undefined.
    """

    def __init__(self, function: Callable[..., float], bounds: tuple[float, float] = (0.0, 1.0)) -> None:
        self.function, self.bounds = function, bounds

    def __call__(self, cases: Cases, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of scikit-learn, where a metric is undefined
            return np.array([self._of(cases, row) for row in weights])

    def _of(self, cases: Cases, weights: NDArray[np.float64]) -> float:
        drawn = weights > 0
        try:
            found = self.function(cases.targets[drawn], cases.scores[drawn], sample_weight=weights[drawn])
        except ValueError:
            return float("nan")
        return float(found)


class OfCurve(CaseMetric):
    """A metric of a run that is one of a curve (`clients.problems.metrics.scores.OfScores`), of single cases.

    Each score is a threshold; of several classes it is the mean of one against the rest.
    """

    of_classes = True

    def __init__(self, metric: Any) -> None:
        self.metric, self.bounds = metric, metric.range

    def __call__(self, cases: Cases, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        from fedbn_flower.clients.problems.metrics.scores import exact_curve

        pairs = one_against_the_rest(cases)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = [[self.metric.of_curve(exact_curve(*pair, row)) for row in weights] for pair in pairs]
        return mean_of_defined(np.array(found))


class OfStates(CaseMetric):
    """A metric of a run (`clients.problems.metrics.Metric`), whose states add: those of single cases are
    added by weight.
    """

    def __init__(self, metric: Any) -> None:
        self.metric, self.bounds = metric, metric.range
        self.has_interval = metric.has_interval
        self.of_classes = metric.predicted.kind == "classes" and metric.range == (0.0, 1.0)

    def __call__(self, cases: Cases, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        rows, targets = self._tensors(cases)
        empty = np.asarray(self.metric.zeros(), np.float64)
        total = np.zeros((len(weights), empty.size))
        for start in range(0, len(cases), BLOCK):
            numbers = range(start, min(start + BLOCK, len(cases)))
            states = [self.metric.batch(rows[i : i + 1], targets[i : i + 1]).ravel() for i in numbers]
            total += weights[:, numbers.start : numbers.stop] @ np.asarray(states, np.float64)
        return np.array([self.metric.value(state.reshape(empty.shape)) for state in total])

    def value(self, cases: Cases) -> float:
        return float(self.metric.value(self.metric.batch(*self._tensors(cases))))

    def _tensors(self, cases: Cases) -> tuple[Any, Any]:
        """Return scores and targets as a run's metric takes them."""
        import torch

        scores, truth = cases.scores, cases.targets
        if scores.ndim == 1 and self.metric.predicted.kind == "classes":
            scores = np.stack([1 - scores, scores], axis=1)
        elif scores.ndim == 1:
            scores, truth = scores[:, None], truth[:, None]
        return torch.tensor(scores), torch.tensor(truth)


def is_average_precision(metric: CaseMetric) -> bool:
    """Return whether it is a run's average precision, of each score or of fixed thresholds."""
    from fedbn_flower.clients.problems.metrics.scores import AveragePrecision

    return isinstance(metric, OfCurve | OfStates) and isinstance(metric.metric, AveragePrecision)


def predicted(cases: Cases, threshold: float = 0.5) -> NDArray[np.int64]:
    """Return the predicted classes, int64 (n,): of the highest score, or 1 from the threshold on."""
    if cases.scores.ndim == 1:
        return np.asarray(cases.scores >= threshold, np.int64)
    return np.asarray(cases.scores.argmax(axis=1), np.int64)


def squared_errors(cases: Cases) -> NDArray[np.float64]:
    """Return the squared error of each case's score, (n,); of several classes half the sum, so 1 at most."""
    if cases.scores.ndim == 1:
        return np.asarray((cases.scores - cases.targets) ** 2)
    return np.asarray(((cases.scores - np.eye(cases.scores.shape[1])[cases.targets]) ** 2).sum(axis=1) / 2)


def _correct(cases: Cases) -> NDArray:
    return np.asarray(predicted(cases) == cases.targets)


METRICS: dict[str, CaseMetric] = {
    "accuracy": Share(_correct),
    "sensitivity": Share(_correct, of=lambda cases: cases.targets == 1),
    "specificity": Share(_correct, of=lambda cases: cases.targets == 0),
    "brier": Mean(squared_errors, of_classes=True),
    "auroc": Auroc(),
}
"""Metrics of cases by name. Sensitivity and specificity are of two classes; 1 is the positive one."""

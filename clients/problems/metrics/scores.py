"""Metrics of the order of scores: functions of histograms of the scores, whose counts are exact.

The histograms' edges are T thresholds, probabilities evenly spaced in log-odds from -20 to 20: rare outcomes,
all of whose probabilities are small, are resolved as well as frequent ones. Each class is one against the
rest. The metric is the mean over classes or labels for which it is defined. Of two classes it is that of
class 1, the positive one.

Examples between two thresholds count as equal. So the AUROC differs from that of the scores by at most
``sum_b p_b n_b / 2``, where p_b and n_b are the shares of the positive and negative examples in bin b. The
average precision differs by at most ``sum_b p_b (h_b - l_b)``, where h_b is the precision if the positives of
the bin come first, all of them, and l_b if one of them comes after all negatives.

Metrics of calibration: functions of sums over bins of the predicted probability.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...modules.lazy_torch import torch
from .base import CLASSES, LABELS, Metric, Predicted, other_count

LOG_ODDS = 20.0  # the last threshold's log-odds


@lru_cache(maxsize=8)
def thresholds(count: int) -> torch.Tensor:
    """Return the thresholds, ascending probabilities, float64 (count,)."""
    return torch.linspace(-LOG_ODDS, LOG_ODDS, count, dtype=torch.float64).sigmoid()


class Curve(NamedTuple):
    """True and false positives at each threshold, the highest first; the first point predicts nothing.

    All are float64 (T + 2,): the threshold (infinite at first, 0 at last), true and false positives.
    """

    threshold: NDArray[np.float64]
    tp: NDArray[np.float64]
    fp: NDArray[np.float64]

    @property
    def sensitivity(self) -> NDArray[np.float64]:
        """True positives over all positives; NaN without any."""
        return np.asarray(self.tp / self.tp[-1])

    @property
    def false_positive_rate(self) -> NDArray[np.float64]:
        """False positives over all negatives; NaN without any."""
        return np.asarray(self.fp / self.fp[-1])

    @property
    def precision(self) -> NDArray[np.float64]:
        """True positives over all that are predicted positive; NaN where nothing is."""
        return self.tp / (self.tp + self.fp)


def curve(histogram: NDArray) -> Curve:
    """Return the curve of one class's histogram, (2, T + 1): negative examples first."""
    edges = thresholds(histogram.shape[1] - 1).numpy()
    return _curve(np.concatenate([[0.0], edges]), histogram)


def exact_curve(truth: NDArray, scores: NDArray, weights: NDArray | None = None) -> Curve:
    """Return the curve of single cases, all of whose scores are thresholds.

    Parameters
    ----------
    truth : NDArray
        Which cases are positive, bool (n,).
    scores : NDArray
        Their scores, float64 (n,).
    weights : NDArray, optional
        How often each counts, (n,); by default once.
    """
    found, which = np.unique(scores, return_inverse=True)
    one = np.ones(len(scores)) if weights is None else weights
    counts = [np.bincount(which, weights=one * kind) for kind in (~truth, truth)]
    return _curve(found, np.array(counts))


def _curve(ascending: NDArray, counts: NDArray) -> Curve:
    """Return the curve of thresholds, (T,), and of the negative and positive cases from each to the next."""
    fp, tp = (np.concatenate([[0.0], np.cumsum(kind[::-1], dtype=np.float64)]) for kind in counts)
    return Curve(np.concatenate([[np.inf], ascending[::-1]]), tp, fp)


class OfScores(Metric):
    """A function of the histograms of the scores, int64 (k, 2, T + 1): negative, then positive examples."""

    state = "score-histogram"

    def batch(self, scores: torch.Tensor, targets: torch.Tensor) -> NDArray:
        scores, truth = self._against_the_rest(scores, targets)
        count, bins = scores.shape[1], self.predicted.thresholds + 1
        found = torch.bucketize(scores.contiguous(), thresholds(bins - 1), right=True)
        cells = (2 * torch.arange(count) + truth) * bins + found
        return torch.bincount(cells.flatten(), minlength=count * 2 * bins).view(count, 2, bins).numpy()

    def _against_the_rest(
        self, scores: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of each class, and its cases, (n, k) each; for two classes only class 1."""
        truth = targets
        if self.predicted.kind == CLASSES:
            truth = (targets.unsqueeze(1) == torch.arange(self.predicted.size)).long()
        return (scores[:, 1:], truth[:, 1:]) if self.predicted.binary else (scores, truth)

    def exact(self, scores: NDArray, targets: NDArray) -> NDArray[np.float64]:
        """Return the metric by class or label, (k,), of cases as `batch` takes them; NaN if undefined.

        Here each score is a threshold, as in scikit-learn.
        """
        pairs = self._against_the_rest(torch.tensor(scores), torch.tensor(targets))
        columns = zip(*(part.numpy().T for part in pairs), strict=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.array([self.of_curve(exact_curve(truth == 1, s)) for s, truth in columns])

    def misfit(self, state: NDArray, predictions: float) -> str:
        return other_count(state.sum((1, 2)), predictions) or super().misfit(state, predictions)

    def values(self, total: NDArray) -> NDArray[np.float64]:
        return np.array([self.of_curve(curve(histogram)) for histogram in total])

    def of_curve(self, curve: Curve) -> float:
        """Return the metric of one class's curve; NaN if undefined."""
        raise NotImplementedError


class Auroc(OfScores):
    """Area under the ROC curve, from fixed thresholds."""

    def of_curve(self, curve: Curve) -> float:
        return float(np.trapezoid(curve.sensitivity, curve.false_positive_rate))


class AveragePrecision(OfScores):
    """Average precision, sum_n (R_n - R_(n-1)) P_n of recall R and precision P, from fixed thresholds."""

    def of_curve(self, curve: Curve) -> float:
        return float(np.sum(np.diff(curve.sensitivity) * np.nan_to_num(curve.precision[1:])))


class SensitivityAt(OfScores):
    """Sensitivity at a fixed specificity: sensitivity-at:0.95, the highest with a specificity of 0.95 on."""

    def __init__(self, predicted: Predicted, argument: str = "") -> None:
        super().__init__(predicted)
        try:
            self.specificity = float(argument)
        except ValueError:
            self.specificity = 0.0
        if not 0 < self.specificity < 1:
            raise ValueError("a specificity between 0 and 1 after a colon: sensitivity-at:0.95")

    def point(self, curve: Curve) -> int:
        """Return the index of the last point of the curve with this specificity or a higher one."""
        allowed = (1 - self.specificity) * curve.fp[-1]
        return int(np.searchsorted(curve.fp, allowed * (1 + 1e-12), side="right")) - 1

    def of_curve(self, curve: Curve) -> float:
        return float(curve.sensitivity[self.point(curve)]) if curve.fp[-1] else float("nan")


BINS = 15
COUNT, HITS, CONFIDENCE = range(3)


class Ece(Metric):
    """Expected calibration error over 15 equal bins.

    ``sum_b n_b / n |hits_b / n_b - confidence_b / n_b|``. The probability is that of the predicted class, and
    a hit is a right prediction (Guo et al. 2017, equation 3). Of two classes, and of labels, it is that of
    class 1 or the label, and a hit is an example that has it.

    The state is float64 (3, bins): examples, hits, the sum of their probabilities; the counts are exact.
    """

    paper = "guo2017calibration"

    higher_is_better = False
    has_interval = False
    state = "calibration"

    def batch(self, scores: torch.Tensor, targets: torch.Tensor) -> NDArray:
        if self.predicted.kind == LABELS:
            confidence, hits = scores.flatten(), targets.flatten()
        elif self.predicted.binary:
            confidence, hits = scores[:, 1], targets
        else:
            confidence, found = scores.max(1)
            hits = (found == targets).long()
        edges = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)[1:-1]
        bins = torch.bucketize(confidence.contiguous(), edges)
        rows = (torch.ones_like(confidence), hits.double(), confidence)
        return torch.stack([torch.bincount(bins, row, minlength=BINS) for row in rows]).double().numpy()

    def misfit(self, state: NDArray, predictions: float) -> str:
        most = state[COUNT] * (1 + 1e-9)
        if (state < 0).any() or (state[1:] > most).any() or (state[:2] % 1).any():
            return "no predictions have such counts"
        if self.predicted.kind == LABELS:
            predictions = predictions * self.predicted.size
        return other_count(state[COUNT].sum(keepdims=True), predictions) or super().misfit(state, predictions)

    def values(self, total: NDArray) -> NDArray[np.float64]:
        gaps = np.abs(total[HITS] - total[CONFIDENCE])
        return np.array([gaps.sum() / total[COUNT].sum()])

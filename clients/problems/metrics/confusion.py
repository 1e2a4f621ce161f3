"""Metrics of the predicted classes: functions of the confusion matrix, whose counts are exact.

The predicted class is the most probable one; a label is predicted from a probability of 0.5 on. Each class is
one against the rest, with true and false positives and negatives TP, FP, TN, FN. The metric is the mean over
classes or labels for which it is defined. Of two classes it is that of class 1, the positive one. Class 0 is
left out if it is the background, as in segmentation, but not of the balanced accuracy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...modules.lazy_torch import torch
from .base import LABELS, Metric, Predicted, mean_of_defined, other_count

Counts = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class OfConfusion(Metric):
    """A function of the confusion matrix, true classes down: int64 (C, C), or (L, 2, 2) of L labels."""

    state = "confusion-matrix"

    def batch(self, scores: torch.Tensor, targets: torch.Tensor) -> NDArray:
        size = self.predicted.size
        if self.predicted.kind == LABELS:
            cells = targets * 2 + (scores >= 0.5) + 4 * torch.arange(size)
            return torch.bincount(cells.flatten(), minlength=4 * size).view(size, 2, 2).numpy()
        cells = targets * size + scores.argmax(1)
        return torch.bincount(cells, minlength=size * size).view(size, size).numpy()

    def misfit(self, state: NDArray, predictions: float) -> str:
        counts = np.atleast_1d(state.sum((-2, -1)))
        return other_count(counts, predictions) or super().misfit(state, predictions)

    def counts(self, total: NDArray) -> Counts:
        """Return TP, FP, FN and TN, int64 (k,), of each label, or of each class from `first` on."""
        if total.ndim == 3:
            return total[:, 1, 1], total[:, 0, 1], total[:, 1, 0], total[:, 0, 0]
        tp = np.diagonal(total)
        fp, fn = total.sum(0) - tp, total.sum(1) - tp
        tn = total.sum() - tp - fp - fn
        return tp[self.first :], fp[self.first :], fn[self.first :], tn[self.first :]

    @property
    def first(self) -> int:
        """The first class that has a value: 1 of two classes, or beside a background."""
        return int(self.predicted.binary or self.predicted.background)


class F1(OfConfusion):
    """F1 score, 2 TP / (2 TP + FP + FN); f1:micro adds the counts, f1:weighted weighs by examples.

    Those, and ``f1:macro``, are of all classes, also of two, as in scikit-learn with this ``average``. Only a
    background is left out.
    """

    AVERAGES = ("micro", "macro", "weighted")

    def __init__(self, predicted: Predicted, argument: str = "") -> None:
        super().__init__(predicted)
        if argument and argument not in self.AVERAGES:
            raise ValueError("micro, macro or weighted after the colon, or nothing")
        self.average = argument

    @property
    def first(self) -> int:
        return int(self.predicted.background) if self.average else super().first

    def values(self, total: NDArray) -> NDArray[np.float64]:
        tp, fp, fn, _ = self.counts(total)
        if self.average == "micro":
            tp, fp, fn = (count.sum(keepdims=True) for count in (tp, fp, fn))
        each = 2 * tp / (2 * tp + fp + fn)
        if self.average != "weighted":
            return each
        examples = tp + fn
        return np.atleast_1d(np.sum((each * examples)[examples > 0]) / examples.sum())


class Dice(F1):
    """Dice coefficient, 2 TP / (2 TP + FP + FN) over all pixels or examples: the F1 score."""


class IoU(OfConfusion):
    """Intersection over union (Jaccard index), TP / (TP + FP + FN)."""

    def values(self, total: NDArray) -> NDArray[np.float64]:
        tp, fp, fn, _ = self.counts(total)
        return tp / (tp + fp + fn)


class Sensitivity(OfConfusion):
    """Sensitivity (recall), TP / (TP + FN)."""

    def values(self, total: NDArray) -> NDArray[np.float64]:
        tp, _, fn, _ = self.counts(total)
        return tp / (tp + fn)


class Specificity(OfConfusion):
    """Specificity, TN / (TN + FP)."""

    def values(self, total: NDArray) -> NDArray[np.float64]:
        _, fp, _, tn = self.counts(total)
        return tn / (tn + fp)


class BalancedAccuracy(OfConfusion):
    """Balanced accuracy: mean over all classes of the share that is predicted right."""

    def values(self, total: NDArray) -> NDArray[np.float64]:
        recall = np.diagonal(total, axis1=-2, axis2=-1) / total.sum(-1)
        return recall if recall.ndim == 1 else np.array([mean_of_defined(r) for r in recall])

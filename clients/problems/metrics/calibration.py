"""Metrics of calibration: functions of sums over bins of the predicted probability."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...modules.lazy_torch import torch
from .base import LABELS, Metric, other_count

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

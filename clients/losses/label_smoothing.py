"""Label smoothing: Szegedy et al. 2016, "Rethinking the Inception Architecture" (arXiv 1512.00567)."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..modules.lazy_torch import functional, torch
from .base import Loss


class LabelSmoothing(Loss):
    """Cross-entropy to ``(1 - s) one-hot + s / classes`` (section 7)."""

    purpose = "For labels with mistakes, and against overconfidence."
    helps = ("wrong-labels",)
    paper = "szegedy2016rethinking"

    of_classes = True
    alike = True

    smoothing: float = setting(0.1, ge=0, lt=1, description="share of the target spread over all classes")

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return functional.cross_entropy(output, targets, label_smoothing=self.smoothing, reduction=reduction)

"""Focal loss: Lin et al. 2017, "Focal Loss for Dense Object Detection" (arXiv 1708.02002)."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..modules.lazy_torch import functional, torch
from .base import Loss, reduced


class Focal(Loss):
    """``-(1 - p_y)^gamma log p_y`` (equation 4): well-classified examples have little weight."""

    purpose = "For many easy examples: hard ones count more."
    helps = ("rare-classes",)
    paper = "lin2017focal"

    of_classes = True
    alike = True

    gamma: float = setting(
        2.0, ge=0, alias="focal-gamma", description="exponent that down-weights well-classified examples"
    )

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        logs = functional.log_softmax(output, 1).gather(1, targets.unsqueeze(1)).squeeze(1)
        missed = (-logs.expm1()).clamp(min=torch.finfo(logs.dtype).tiny)  # at 0 a root has no gradient
        return reduced(-(missed**self.gamma) * logs, reduction)

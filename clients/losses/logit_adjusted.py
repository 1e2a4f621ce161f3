"""Logit adjustment: Menon et al. 2021, "Long-Tail Learning via Logit Adjustment" (arXiv 2007.07314)."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..modules.lazy_torch import functional, torch
from .base import Loss


class LogitAdjusted(Loss):
    """Cross-entropy of ``z + tau log q`` (equation 10), q the classes' shares of the client's examples.

    A class that the client lacks counts as one example.
    """

    purpose = "For rare classes at a client: its share of classes is allowed for."
    helps = ("rare-classes", "label-skew")
    paper = "menon2021logit"

    of_classes = True

    tau: float = setting(1.0, ge=0, alias="logit-tau", description="weight of the log frequencies")

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        adjusted = output + self.tau * self.frequencies(output).log()
        return functional.cross_entropy(adjusted, targets, reduction=reduction)

"""Class-balanced loss: Cui et al. 2019, "Class-Balanced Loss Based on Effective Number of Samples"."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..modules.lazy_torch import functional, torch
from .base import Loss, reduced


class ClassBalanced(Loss):
    """Cross-entropy, a class of n examples weighted by ``(1 - beta) / (1 - beta^n)`` (equation 12).

    arXiv 1901.05555. n is the number of the client's examples of the class. The weights of the classes that
    it has have mean 1.
    """

    purpose = "For rare classes: each class counts about alike."
    helps = ("rare-classes",)
    paper = "cui2019classbalanced"

    of_classes = True

    beta: float = setting(
        0.9999, ge=0, lt=1, alias="cb-beta", description="decay of the value of further examples of a class"
    )

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        counts = self.class_counts(output).double()
        present = counts > 0
        weights = torch.where(present, (1 - self.beta) / (1 - self.beta ** counts.clamp(min=1)), 0.0)
        weights = (weights * present.sum() / weights.sum()).to(output)
        return reduced(
            weights[targets] * functional.cross_entropy(output, targets, reduction="none"), reduction
        )

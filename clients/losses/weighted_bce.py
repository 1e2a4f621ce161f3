"""Weighted binary cross-entropy, for labels that few examples have."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from ..modules.lazy_torch import functional, torch
from .base import Loss, reduced


class WeightedBce(Loss):
    """Binary cross-entropy in which a label's positive examples weigh ``negatives / positives``.

    These are the counts of the client's training examples, each at least 1.
    """

    purpose = "For rare labels: positive examples count as much as negative ones."
    helps = ("rare-classes",)

    requires: ClassVar = {"problem": {"multi-label"}}

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        weights = self.positive_weights.to(output)
        each = functional.binary_cross_entropy_with_logits(
            output, targets, pos_weight=weights, reduction="none"
        )
        return reduced(each.mean(1), reduction)

    @cached_property
    def positive_weights(self) -> torch.Tensor:
        """The weight of a positive example of each label, float32 (labels,)."""
        targets = self.training_targets
        positives = targets.sum(0)
        return (len(targets) - positives).clamp(min=1) / positives.clamp(min=1)

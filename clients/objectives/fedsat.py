"""FedSat: a client's struggle score of each class."""

from __future__ import annotations

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import SCORES, STRUGGLE

from ..modules.lazy_torch import functional, nn, torch
from .base import LocalWork, Objective, Outcome

EPSILON = 1e-6


class FedSat(Objective):
    """f alone, with a running soft confusion ``C <- mu C + (1 - mu)(Y^T P + e)`` of the training batches.

    Y are the batch's one-hot targets, P the softmax of its outputs. N are running counts of the classes,
    updated in the same way. The struggle score ``S_i = sum_{j != i} C_ij / (N_i + e)`` of class i, at most 1,
    is sent to the server. It is 1 for a class that the client has not had. All losses work; only CALC uses C.
    """

    purpose = "Counts which classes a client confuses (with strategy fedsat)."
    helps = ("label-skew",)
    paper = "chowdhury2024fedsat"

    mu: float = setting(0.95, ge=0, lt=1, alias="confusion-mu", description="decay of the running confusion")

    requires: ClassVar = {"strategy": {"fedsat"}}
    of_classes = True
    remembers = True

    def begin(self) -> None:
        device = next(self.client.model.parameters()).device
        memory = {name: torch.from_numpy(array).to(device) for name, array in (self.memory or {}).items()}
        self.confusion, self.counts = memory.get("confusion"), memory.get("counts")

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = model(inputs)
        self._count(output.detach(), targets)
        self.criterion.confusion = self.confusion
        return self.criterion(output, targets, reduction), output

    def _count(self, output: torch.Tensor, targets: torch.Tensor) -> None:
        classes = output.shape[1]
        if self.confusion is None or self.counts is None:
            self.confusion, self.counts = output.new_zeros(classes, classes), output.new_zeros(classes)
        labels = functional.one_hot(targets, classes).to(output)
        self.confusion = self.mu * self.confusion + (1 - self.mu) * (labels.T @ output.softmax(1) + EPSILON)
        self.counts = self.mu * self.counts + (1 - self.mu) * labels.sum(0)

    def finish(self, work: LocalWork) -> Outcome:
        assert self.confusion is not None
        assert self.counts is not None
        wrong = self.confusion.sum(1) - self.confusion.diagonal()
        seen = self.counts > 0
        scores = torch.where(seen, wrong / (self.counts + EPSILON), 1.0).clamp(0, 1)
        return Outcome(
            memory={
                "confusion": self.confusion.numpy(force=True),
                "counts": self.counts.numpy(force=True),
            },
            records={STRUGGLE: {SCORES: scores.numpy(force=True)}},
        )

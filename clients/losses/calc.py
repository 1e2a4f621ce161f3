"""CALC, the loss for FedSat: margins from the frequencies and the confusion of classes."""

from __future__ import annotations

from typing import ClassVar

from ..modules.lazy_torch import functional, torch
from .base import Loss, reduced

FREQUENCY, PULL, CONFUSED = 0.1, 0.05, 0.5


class Calc(Loss):
    """``0.95 (-z_y + log sum_j exp(z_j + D_yj)) + 0.05 CE(z - 0.5 M_y)`` of logits ``z - 0.1 q^(-1/4)``.

    q are the classes' shares of the client's examples; an absent class counts as one example. D comes from
    the running confusion C: symmetrised, rows normalised to sum 1, diagonal 0, divided by its largest entry.
    M is the same for the softmax of C's rows. D and M have no gradient. Without C, as in the training of a
    personal model, they are 0.
    """

    purpose = "For classes that a client confuses (with objective fedsat)."
    helps = ("label-skew",)
    paper = "chowdhury2024fedsat"

    requires: ClassVar = {"objective": {"fedsat"}}
    of_classes = True

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        z = output - FREQUENCY * self.frequencies(output) ** -0.25
        if self.confusion is None:
            return functional.cross_entropy(z, targets, reduction=reduction)
        margins, confused = margins_of(self.confusion), margins_of(self.confusion.softmax(1))
        contrast = torch.logsumexp(z + margins[targets], 1) - z.gather(1, targets.unsqueeze(1)).squeeze(1)
        usual = functional.cross_entropy(z - CONFUSED * confused[targets], targets, reduction="none")
        return reduced((1 - PULL) * contrast + PULL * usual, reduction)


def margins_of(confusion: torch.Tensor) -> torch.Tensor:
    """Return (C + C^T) / 2 with rows normalised to sum 1, diagonal 0, divided by its largest entry."""
    both = (confusion + confusion.T) / 2
    rows = both / both.sum(1, keepdim=True)
    rows = rows - torch.diag(rows.diagonal())
    return rows / rows.max()

"""An objective that wraps another one, for clients that do more in a step than train one model."""

from __future__ import annotations

from .modules.lazy_torch import nn, torch
from .objectives import Objective


class Around(Objective):
    """Another objective, to which a subclass adds something before or after each batch's passes.

    It is used by `training.train_model` only: the round's outcome is the inner objective's `finish`.

    Parameters
    ----------
    inner : Objective
        The objective of the round.
    """

    def __init__(self, inner: Objective) -> None:
        self.inner = inner
        self.parameters, self.start = inner.parameters, inner.start
        self.problem, self.criterion = inner.problem, inner.criterion

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inner.loss(model, inputs, targets, reduction)

    def correct_gradients(self) -> None:
        self.inner.correct_gradients()

"""Mime: Karimireddy et al. 2020, "Mimicking Centralized Stochastic Algorithms" (arXiv 2008.03606)."""

from __future__ import annotations

from typing import ClassVar

from fedbn_flower.core.ground.wire import GRADIENT

from ...modules.lazy_torch import nn, torch
from ...modules.rng import replayed
from ...update import Records
from ..base import LocalWork, Outcome
from .mimelite import MimeLite


class Mime(MimeLite):
    """MimeLite's step for SVRG's gradient, ``g(w; batch) - g(x; batch) + c``.

    c is the mean over the round's clients of the gradient of all of their examples at x, for which the server
    asks before the round's training. Both gradients of a batch are those of training mode with the same draws
    (dropout); the one at x moves no BatchNorm statistics. So at w = x the step is the server's own.
    """

    purpose = "The clients' half of Mime: MimeLite's steps, corrected by all clients' gradient."
    helps = ("label-skew", "few-rounds")
    paper = "karimireddy2020mime"

    requires: ClassVar = MimeLite.requires | {"strategy": {"mime"}}

    def begin(self) -> None:
        self.read_state()
        if GRADIENT in self.received:  # not yet when the server asks for it
            self.mean = self.received_tensors(GRADIENT)

    def first_answer(self) -> Records:
        return {GRADIENT: {name: g.numpy(force=True) for name, g in self.full_gradient().items()}}

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.of_batch = self.gradients_at_start(model, inputs, targets)
        return super().loss(model, inputs, targets, reduction)

    def gradients_at_start(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the gradients of a batch's loss at x, by name; the model stays as it is."""
        trained = {name: w for name, w in self.parameters.items() if w.requires_grad}
        here = {name: w.detach().clone() for name, w in trained.items()}
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        for name, w in trained.items():
            w.detach().copy_(self.start[name])
        with replayed():
            loss = self.criterion(model(inputs), targets)
            found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        for name, w in trained.items():
            w.detach().copy_(here[name])
        for buffer, before in buffers:
            buffer.copy_(before)
        return {name: g for name, g in zip(trained, found, strict=True) if g is not None}

    def correct_gradients(self) -> None:
        for name, _, gradient in self.gradients():
            gradient.add_(self.mean[name])
            if name in self.of_batch:
                gradient.sub_(self.of_batch[name])
        super().correct_gradients()

    def finish(self, work: LocalWork) -> Outcome:
        return Outcome()

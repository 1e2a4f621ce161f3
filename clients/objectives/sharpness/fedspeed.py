"""FedSpeed: Sun et al. 2023, "Larger Local Interval, Less Communication Round" (arXiv 2302.10429)."""

from __future__ import annotations

from collections.abc import Mapping

from fedbn_flower.core.ground.settings import setting

from ...modules.lazy_torch import nn, torch
from ..base import LocalWork, Outcome
from .fedsam import FedSAM


class FedSpeed(FedSAM):
    """The gradient ``(1 - a) grad f(w) + a grad f(w + e) - g_i + (w - x)/lambda``.

    e is FedSAM's step of length rho. Afterwards ``g_i -= (x_i - x)/lambda``, and ``x_i - lambda g_i`` is sent
    in the place of x_i: what the proximal term held back. Initially g_i = 0. The authors' code has the
    server add the mean of ``-lambda g_i`` over all clients, not over those that answered.
    """

    purpose = "Long local training that stays together: a proximal term whose bias is corrected, flat minima."
    helps = ("label-skew", "few-rounds")
    paper = "sun2023fedspeed"

    rho = 0.1
    alpha: float = setting(
        1.0, ge=0, le=1, alias="speed-alpha", description="a, share of the gradient at the perturbed weights"
    )
    pulled_by = ("speed-lambda", -1)
    prox: float = setting(
        10.0, gt=0, alias="speed-lambda", description="lambda, one over the weight of the proximal term"
    )

    remembers = True

    def begin(self) -> None:
        self.g = self.tensors(self.memory)

    def direction(
        self, model: nn.Module, gradients: Mapping[nn.Parameter, torch.Tensor]
    ) -> Mapping[nn.Parameter, torch.Tensor]:
        self.first = gradients
        return gradients

    def correct_gradients(self) -> None:
        super().correct_gradients()
        for p, first in self.first.items():
            if p.grad is not None:
                p.grad.mul_(self.alpha).add_(first, alpha=1 - self.alpha)
        for name, w, gradient in self.gradients():
            gradient.sub_(self.g[name]).add_(w - self.start[name], alpha=1 / self.prox)

    def finish(self, work: LocalWork) -> Outcome:
        memory, sent = {}, {}
        for name, w in self.parameters.items():
            g = self.g[name] - (w.detach() - self.start[name]) / self.prox
            memory[name] = g.numpy(force=True)
            sent[name] = (w.detach() - self.prox * g).to(w.dtype).numpy(force=True)
        return Outcome(memory=memory, sent=sent)

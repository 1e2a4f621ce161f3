"""FedSMOO: Sun et al. 2023, "Dynamic Regularized Sharpness Aware Minimization in FL" (arXiv 2305.11584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import PERTURBATION

from ...modules.lazy_torch import nn, torch
from ..base import LocalWork, Outcome
from .fedsam import FedSAM

DUAL, OF_PERTURBATION = "lambda.", "mu."
"""How the names of both dual variables begin in the memory."""


class FedSMOO(FedSAM):
    """The gradient ``grad f(w + e) - lambda_i + (w - x)/beta``, e near that of all clients.

    e has length rho and the direction of ``grad f(w) - mu_i - s``, with s from the server; then ``mu_i += e -
    s``. After the round ``lambda_i -= (x_i - x)/beta``, and ``mu_i - e`` of the last step goes to the server.
    Initially all of these are 0.
    """

    purpose = "FedDyn's correction of drift with one perturbation for all clients (with strategy fedsmoo)."
    helps = ("label-skew", "few-rounds")
    paper = "sun2023fedsmoo"

    rho = 0.1
    pulled_by = ("smoo-beta", -1)
    beta: float = setting(10.0, gt=0, alias="smoo-beta", description="one over the weight of the prox")

    requires: ClassVar = {"strategy": {"fedsmoo"}}
    remembers = True

    def begin(self) -> None:
        kept = self.memory or {}
        self.dual, self.mu = (
            self.tensors({n.removeprefix(kind): a for n, a in kept.items() if n.startswith(kind)})
            for kind in (DUAL, OF_PERTURBATION)
        )
        self.s = self.received_tensors(PERTURBATION)
        self.e = {name: torch.zeros_like(x) for name, x in self.start.items()}

    def direction(
        self, model: nn.Module, gradients: Mapping[nn.Parameter, torch.Tensor]
    ) -> Mapping[nn.Parameter, torch.Tensor]:
        names: dict[torch.Tensor, str] = {p: name for name, p in self.parameters.items()}
        return {
            p: g - self.mu[names[p]] - self.s[names[p]] if p in names else g for p, g in gradients.items()
        }

    def perturb(self, direction: Mapping[nn.Parameter, torch.Tensor]) -> None:
        super().perturb(direction)
        for name, p in self.parameters.items():
            if p in self.unperturbed:
                self.e[name] = p.detach() - self.unperturbed[p]
                self.mu[name] += self.e[name] - self.s[name]

    def correct_gradients(self) -> None:
        super().correct_gradients()
        for name, w, gradient in self.gradients():
            gradient.sub_(self.dual[name]).add_(w - self.start[name], alpha=1 / self.beta)

    def finish(self, work: LocalWork) -> Outcome:
        memory, perturbation = {}, {}
        for name, w in self.parameters.items():
            dual = self.dual[name] - (w.detach() - self.start[name]) / self.beta
            memory[DUAL + name] = dual.numpy(force=True)
            memory[OF_PERTURBATION + name] = self.mu[name].numpy(force=True)
            perturbation[name] = (self.mu[name] - self.e[name]).numpy(force=True)
        return Outcome(memory=memory, records={PERTURBATION: perturbation})

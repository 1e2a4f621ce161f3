"""Objectives whose gradient is taken a small step uphill: they look for flat minima.

FedSAM: Qu et al. 2022, "Generalized Federated Learning via Sharpness Aware Minimization" (2206.02618).
FedSMOO: Sun et al. 2023, "Dynamic Regularized Sharpness Aware Minimization in FL" (arXiv 2305.11584).
FedSpeed: Sun et al. 2023, "Larger Local Interval, Less Communication Round" (arXiv 2302.10429).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import PERTURBATION

from ..modules.lazy_torch import nn, torch
from .base import LocalWork, Objective, Outcome


class FedSAM(Objective):
    """The gradient of f at ``w + rho grad f / ||grad f||``, applied at w (Algorithm 1).

    The norm is over all trained parameters. Loss and output are those of the second pass, at the perturbed
    weights; BatchNorm statistics and other buffers move in the first one only, at w.
    """

    purpose = "Looks for flat minima, which survive averaging better; twice the work."
    helps: ClassVar[tuple[str, ...]] = ("label-skew",)
    paper = "qu2022fedsam"

    rho: float = setting(0.05, ge=0, description="L2 norm of the perturbation", allow_inf_nan=False)

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        gradients = self.first_gradients(model, inputs, targets)
        moved = (*gradients, *model.buffers())
        self.unperturbed: dict[torch.Tensor, torch.Tensor] = {x: x.detach().clone() for x in moved}
        self.perturb(self.direction(model, gradients))
        output = model(inputs)
        return self.criterion(output, targets, reduction), output

    def first_gradients(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor
    ) -> dict[nn.Parameter, torch.Tensor]:
        """Return the gradients of f at w by trained parameter."""
        trained = [p for p in model.parameters() if p.requires_grad]
        first = self.criterion(model(inputs), targets)
        found = torch.autograd.grad(first, trained, allow_unused=True)
        return {p: g for p, g in zip(trained, found, strict=True) if g is not None}

    def direction(
        self, model: nn.Module, gradients: Mapping[nn.Parameter, torch.Tensor]
    ) -> Mapping[nn.Parameter, torch.Tensor]:
        """Return the direction of the step, from the gradients of f at w."""
        return gradients

    def perturb(self, direction: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Step by rho along a direction, which is normalised."""
        norm = torch.stack([g.norm() for g in direction.values()]).norm().clamp(min=1e-12)
        for p, gradient in direction.items():
            p.detach().add_(gradient * (self.rho / norm))

    def correct_gradients(self) -> None:
        """Restore w exactly, so that the step starts from it, and the buffers of the pass there."""
        for x, before in self.unperturbed.items():
            x.detach().copy_(before)


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


class FedSpeed(FedSAM):
    """The gradient ``(1 - a) grad f(w) + a grad f(w + e) - g_i + (w - x)/lambda``.

    e is FedSAM's step of length rho. Afterwards ``g_i -= (x_i - x)/lambda``, and ``x_i - lambda g_i`` is sent
    instead of x_i, to restore what the proximal term held back. Initially g_i = 0. The authors' code has the
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

"""FedSAM: Qu et al. 2022, "Generalized Federated Learning via Sharpness Aware Minimization" (2206.02618)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedbn_flower.core.ground.settings import setting

from ...modules.lazy_torch import nn, torch
from ..base import Objective


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
        """Return what to step along, from the gradients of f at w."""
        return gradients

    def perturb(self, direction: Mapping[nn.Parameter, torch.Tensor]) -> None:
        """Step by rho along a direction, whose length does not count."""
        norm = torch.stack([g.norm() for g in direction.values()]).norm().clamp(min=1e-12)
        for p, gradient in direction.items():
            p.detach().add_(gradient * (self.rho / norm))

    def correct_gradients(self) -> None:
        """Restore w exactly, so that the step starts from it, and the buffers of the pass there."""
        for x, before in self.unperturbed.items():
            x.detach().copy_(before)

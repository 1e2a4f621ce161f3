"""Adaptive gradient clipping: Brock et al. 2021, "High-Performance Large-Scale Image Recognition Without
Normalization" (arXiv 2102.06171), equation 3.

``G_i`` becomes ``lambda max(||W_i||, 1e-3) G_i / ||G_i||`` where its norm is larger than that. A unit i is a
row of a weight, which belongs to one output; a vector, such as a bias, is one unit. The head is not clipped.
"""

from __future__ import annotations

from collections.abc import Iterable

from .head import head_entries
from .lazy_torch import nn, torch

LEAST = 1e-3
"""Lower bound on the norm of weights, so that those that begin at zero can move."""


def before_head(model: nn.Module) -> list[nn.Parameter]:
    """Return the trained parameters, except those of the head."""
    head = head_entries(model)
    return [p for name, p in model.named_parameters() if p.requires_grad and name not in head]


def clip_adaptively(parameters: Iterable[torch.Tensor], bound: float, stacked: bool = False) -> None:
    """Clip the gradients of parameters in place.

    Parameters
    ----------
    parameters : Iterable[Tensor]
        The parameters; those without a gradient are skipped.
    bound : float
        lambda, above 0.
    stacked : bool
        Whether the first dimension of each is over several models.
    """
    for p in parameters:
        if p.grad is None:
            continue
        weights, gradient = _norm(p.detach(), stacked), _norm(p.grad, stacked)
        largest = bound * weights.clamp(min=LEAST)
        p.grad.mul_(torch.where(gradient > largest, largest / gradient, 1.0))


def _norm(tensor: torch.Tensor, stacked: bool) -> torch.Tensor:
    """Return the norm of each unit, in a shape that the tensor can be multiplied with."""
    models = int(stacked)
    whole = tensor.dim() - models <= 1
    dims = tuple(range(models if whole else models + 1, tensor.dim()))
    return torch.linalg.vector_norm(tensor, dim=dims, keepdim=True) if dims else tensor.abs()

"""Layers that stand in the place of BatchNorm, and convolutions and linear layers that go without it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

GAMMA = math.sqrt(2 / (1 - 1 / math.pi))
"""Inverse deviation of a ReLU of N(0, 1): with it, activations keep their variance."""
LEAST = 1e-4
"""Lower bound on sigma^2 N, as in the code of Brock et al. 2021."""


class Affine(nn.Module):
    """``weight x + bias`` for each channel: what BatchNorm is without normalising.

    Parameters
    ----------
    channels : int
        C, of inputs (b, C, ...).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.dim() - 2))
        return x * self.weight.view(shape) + self.bias.view(shape)


def standardised(weight: Tensor) -> Tensor:
    """Return ``gamma (W - mu) / (sigma sqrt(N))``, mu and sigma over the N weights of each output (row)."""
    each = weight.flatten(1)
    variance, mean = torch.var_mean(each, dim=1, correction=0, keepdim=True)
    scale = GAMMA * torch.rsqrt((variance * each.shape[1]).clamp(min=LEAST))
    return ((each - mean) * scale).view_as(weight)


class StandardisedConv1d(nn.Conv1d):
    """`nn.Conv1d` with standardised weights."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._conv_forward(x, standardised(self.weight), self.bias)
        return y


class StandardisedConv2d(nn.Conv2d):
    """`nn.Conv2d` with standardised weights."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._conv_forward(x, standardised(self.weight), self.bias)
        return y


class StandardisedConv3d(nn.Conv3d):
    """`nn.Conv3d` with standardised weights."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._conv_forward(x, standardised(self.weight), self.bias)
        return y


class StandardisedLinear(nn.Linear):
    """`nn.Linear` with standardised weights."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, standardised(self.weight), self.bias)


STANDARDISED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: StandardisedConv1d,
    nn.Conv2d: StandardisedConv2d,
    nn.Conv3d: StandardisedConv3d,
    nn.Linear: StandardisedLinear,
}
"""Each layer with weights -> the same with standardised ones."""

"""Evaluate a network on images larger than those that it trains on: window by window."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..modules.lazy_torch import nn, torch

WIDTH = 1 / 8
"""Standard deviation of the weights, in sides of a window."""
LEAST = 1e-3
"""Weight of the corners, which would otherwise be rounded off."""


def in_windows(model: nn.Module, inputs: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Return a network's outputs of windows, averaged where these overlap by half.

    A window counts most at its centre, by a Gaussian, as in nnU-Net (Isensee et al. 2021, supplementary note
    4). The last windows end with the image.

    Parameters
    ----------
    model : nn.Module
        Maps (b, channels, *sizes) to (b, outputs, *sizes).
    inputs : Tensor
        (b, channels, ...), at least as large as a window along each axis.
    sizes : Sequence[int]
        Of a window.

    Returns
    -------
    Tensor
        (b, outputs, ...), as large as the inputs.
    """
    weights = _weights(sizes).to(inputs.device)
    total = torch.zeros(())
    counted = torch.zeros(inputs.shape[2:], device=inputs.device)
    pairs = zip(inputs.shape[2:], sizes, strict=True)
    for starts in itertools.product(*(_starts(size, window) for size, window in pairs)):
        place = tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
        output = model(inputs[(slice(None), slice(None), *place)])
        if not total.dim():
            total = output.new_zeros((*output.shape[:2], *inputs.shape[2:]))
        total[(slice(None), slice(None), *place)] += output * weights
        counted[place] += weights
    return total / counted


def _starts(size: int, window: int) -> list[int]:
    last = size - window
    return sorted({*range(0, last, max(1, window // 2)), last})


def _weights(sizes: Sequence[int]) -> torch.Tensor:
    weights = torch.ones(tuple(sizes))
    for axis, size in enumerate(sizes):
        away = (torch.arange(size) - (size - 1) / 2) / (WIDTH * size)
        weights = weights * torch.exp(-(away**2) / 2).reshape(
            [-1 if a == axis else 1 for a in range(len(sizes))]
        )
    return weights.clamp(min=LEAST)

"""Moments of the inputs of BatchNorm layers, gathered so that the server can pool those of all clients.

Instead of a layer's statistics, a client sends the mean of the layer's inputs and their second moment about
the received mean, m0. The server takes the weighted mean of both over clients. The variance of all clients'
inputs is then ``second - (mean - m0)^2``: it includes the variance between the clients' means, as the
variance of pooled data does, which the mean of the clients' variances would lack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .batch_norm import batch_norm_modules, pools
from .lazy_torch import nn, torch

MEAN, VARIANCE = "running_mean", "running_var"
Moments = dict[str, "torch.Tensor"]
"""The means and second moments of layers, float64 (C,), by the names of `MEAN` and `VARIANCE` entries."""


def pooled_layers(model: nn.Module) -> list[str]:
    """Return the names of the BatchNorm layers whose statistics can be pooled, under all names."""
    return [name for name, layer in batch_norm_modules(model) if pools(layer)]


@contextmanager
def measured(model: nn.Module, counts: Callable[[], bool] = lambda: True) -> Iterator[Callable[[], Moments]]:
    """Measure the inputs of BatchNorm layers in the passes within.

    Yield a function that returns the moments of all values so far, without layers that had none. They are
    about a layer's running mean at the beginning.

    Parameters
    ----------
    model : nn.Module
        The model.
    counts : callable
        Called during a pass; returns whether that pass counts.
    """
    layers = [(name, layer) for name, layer in batch_norm_modules(model) if pools(layer)]
    sums: dict[nn.Module, list[Any]] = {}
    about: dict[nn.Module, torch.Tensor] = {
        layer: layer.get_buffer(MEAN).detach().double().clone() for _, layer in layers
    }

    def add(layer: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        if not counts():
            return
        values = inputs[0].detach().double().transpose(0, 1).flatten(1) - about[layer].unsqueeze(1)
        found = [values.shape[1], values.sum(1), values.square().sum(1)]
        sums[layer] = [a + b for a, b in zip(sums[layer], found, strict=True)] if layer in sums else found

    hooks = [layer.register_forward_pre_hook(add) for layer in about]

    def moments() -> Moments:
        found: Moments = {}
        for name, layer in layers:
            if layer in sums:
                count, first, second = sums[layer]
                prefix = f"{name}." if name else ""
                found[prefix + MEAN] = about[layer] + first / count
                found[prefix + VARIANCE] = second / count
        return found

    try:
        yield moments
    finally:
        for hook in hooks:
            hook.remove()


def pooled(
    mean: NDArray, second: NDArray, sent: Mapping[str, NDArray], share: float
) -> tuple[NDArray, NDArray]:
    """Return a layer's next statistics from the clients' moments: ``(1 - share) sent + share pooled``.

    Parameters
    ----------
    mean, second : NDArray
        (C,): the clients' means and second moments about the mean that was sent, averaged.
    sent : Mapping[str, NDArray]
        The statistics that were sent: `MEAN` and `VARIANCE`.
    share : float
        The share of the new statistics, in (0, 1].
    """
    before, old = (sent[name].astype(np.float64) for name in (MEAN, VARIANCE))
    variance = np.maximum(second.astype(np.float64) - (mean - before) ** 2, 0)
    found = before + share * (mean - before), old + share * (variance - old)
    return found[0].astype(mean.dtype), found[1].astype(second.dtype)

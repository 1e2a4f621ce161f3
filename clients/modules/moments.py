"""Moments of what goes into BatchNorm layers, gathered so that the server can pool those of all clients.

A client sends, in the place of a layer's statistics, the mean of its inputs and their second moment about the
mean that it received, m0. Of both the server takes the weighted mean over clients. The variance of all
clients' inputs is then ``second - (mean - m0)^2``: what lies between the clients' means is part of it, as in
the variance of all data in one place, and the mean of the clients' variances would lack it.
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
    """Return the names of the BatchNorm layers of which statistics can be pooled, under all names."""
    return [name for name, layer in batch_norm_modules(model) if pools(layer)]


@contextmanager
def measured(model: nn.Module, counts: Callable[[], bool] = lambda: True) -> Iterator[Callable[[], Moments]]:
    """Measure the inputs of BatchNorm layers in the passes to come.

    Yield what returns the moments of all values so far; it has nothing of a layer without any. They are about
    the running means that a layer has before.

    Parameters
    ----------
    model : nn.Module
        The model.
    counts : callable
        Whether a pass counts, while it is done.
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
    """Return a layer's next statistics of what clients gathered: ``(1 - share) sent + share pooled``.

    Parameters
    ----------
    mean, second : NDArray
        (C,): the clients' means and second moments about the mean that was sent, averaged.
    sent : Mapping[str, NDArray]
        The statistics that were sent: `MEAN` and `VARIANCE`.
    share : float
        Of the new ones, in (0, 1].
    """
    before, old = (sent[name].astype(np.float64) for name in (MEAN, VARIANCE))
    variance = np.maximum(second.astype(np.float64) - (mean - before) ** 2, 0)
    found = before + share * (mean - before), old + share * (variance - old)
    return found[0].astype(mean.dtype), found[1].astype(second.dtype)

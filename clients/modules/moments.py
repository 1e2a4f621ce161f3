"""BatchNorm of several clients: moments of its inputs, and the union of their batches.

Moments are gathered so that the server can pool those of all clients.

Instead of a layer's statistics, a client sends the mean of the layer's inputs and their second moment about
the received mean, m0. The server takes the weighted mean of both over clients. The variance of all clients'
inputs is then ``second - (mean - m0)^2``: it includes the variance between the clients' means, as the
variance of pooled data does, which the mean of the clients' variances would lack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .batch_norm import BatchNorm, batch_norm_modules, follow, pools
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


class Call(NamedTuple):
    """What a layer did in a pass: its mean and variance (C,), by the names of `normalised_by`.

    Parameters
    ----------
    own : dict[str, Tensor]
        The mean of this client's inputs, and the mean squared distance from the mean that the layer used. The
        gradient flows through both.
    used : dict[str, Tensor]
        The statistics by which the layer normalised: the given ones, as leaves with a gradient, else its own.
    """

    own: dict[str, torch.Tensor]
    used: dict[str, torch.Tensor]


def trained_layers(model: nn.Module) -> list[tuple[str, BatchNorm]]:
    """Return the layers that normalise by a batch in the model's current mode, each under one name."""
    found = {layer: name for name, layer in reversed(list(batch_norm_modules(model)))}
    return [(name, layer) for layer, name in reversed(found.items()) if pools(layer) and layer.training]


@contextmanager
def normalised_by(
    model: nn.Module, given: Mapping[str, torch.Tensor], batches: float | None = None
) -> Iterator[list[Call]]:
    """Make BatchNorm layers in training mode normalise by given statistics in the next pass.

    Without a given one, a layer uses the statistic of its own inputs. Yields the list of calls, filled by the
    pass.

    Parameters
    ----------
    model : nn.Module
        The model, in training mode.
    given : Mapping[str, Tensor]
        Means and variances (C,) of all clients' inputs, as ``CALL:LAYER.running_mean`` and
        ``CALL:LAYER.running_var``, with the number of the call in the pass: a layer may be called twice.
    batches : float, optional
        The examples in all batches per example in this one: running statistics then follow the given ones,
        with the unbiased variance, as in BatchNorm. Without it they do not change.
    """
    calls: list[Call] = []
    layers = trained_layers(model)
    before = [vars(layer).copy() for _, layer in layers]
    for name, layer in layers:
        vars(layer)["forward"] = partial(_normalise, layer, name, given, batches, calls)
    try:
        yield calls
    finally:
        for (_, layer), attributes in zip(layers, before, strict=True):
            del vars(layer)["forward"]
            if "forward" in attributes:
                vars(layer)["forward"] = attributes["forward"]


def _normalise(
    layer: BatchNorm,
    name: str,
    given: Mapping[str, torch.Tensor],
    batches: float | None,
    calls: list[Call],
    inputs: torch.Tensor,
) -> torch.Tensor:
    mean_name, variance_name = (f"{len(calls)}:{name and name + '.'}{kind}" for kind in (MEAN, VARIANCE))
    x = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
    over, shape = [0, *range(2, x.dim())], (-1, *[1] * (x.dim() - 2))
    own_mean = x.mean(over)
    mean = given[mean_name].to(own_mean).requires_grad_() if mean_name in given else own_mean
    centred = x - mean.view(shape)
    own_variance = centred.square().mean(over)
    variance = given[variance_name].to(own_mean).requires_grad_() if variance_name in given else own_variance
    own = {mean_name: own_mean, variance_name: own_variance}
    calls.append(Call(own, {mean_name: mean, variance_name: variance}))
    if batches is not None:
        follow(layer, mean.detach(), variance.detach(), batches * x.numel() / x.shape[1])
    y = centred * torch.rsqrt(variance + layer.eps).view(shape)
    if layer.affine:
        y = y * layer.weight.view(shape) + layer.bias.view(shape)
    return y.to(inputs.dtype)

"""BatchNorm over the union of several clients' batches, each computed at its client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from .batch_norm import BatchNorm, batch_norm_modules, follow, pools
from .lazy_torch import nn, torch
from .moments import MEAN, VARIANCE


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

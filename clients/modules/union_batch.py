"""BatchNorm over the batches of several clients, of which each has its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from .batch_norm import BatchNorm, batch_norm_modules, follow, pools
from .lazy_torch import nn, torch
from .moments import MEAN, VARIANCE

Statistics = Mapping[str, "torch.Tensor"]
"""Means and variances (C,) of the inputs of layers, by the names of `Call`."""


class Call(NamedTuple):
    """What a layer did in a pass, and what went into it.

    Parameters
    ----------
    mean_name, variance_name : str
        ``CALL:LAYER.running_mean`` and ``CALL:LAYER.running_var``, with the number of the call in the pass: a
        layer may be called twice.
    own_mean, own_variance : Tensor
        (C,): the mean of this client's inputs, and that of their squared distances from the mean that the
        layer used. The gradient goes through both.
    mean, variance : Tensor
        (C,): by which the layer normalised, as constants that have a gradient if they were given.
    """

    mean_name: str
    variance_name: str
    own_mean: torch.Tensor
    own_variance: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor


def trained_layers(model: nn.Module) -> list[tuple[str, BatchNorm]]:
    """Return the layers that normalise by a batch as the model is now, each under one name."""
    found = {layer: name for name, layer in reversed(list(batch_norm_modules(model)))}
    return [(name, layer) for layer, name in reversed(found.items()) if pools(layer) and layer.training]


@contextmanager
def normalised_by(model: nn.Module, given: Statistics, batches: float | None = None) -> Iterator[list[Call]]:
    """Have BatchNorm layers in training mode normalise by given statistics in the pass to come.

    Where none is given, a layer takes that of its own inputs. Yield the list of calls, which the pass fills.

    Parameters
    ----------
    model : nn.Module
        The model, in training mode.
    given : Mapping[str, Tensor]
        Statistics of all clients' inputs.
    batches : float, optional
        How many examples there are in all batches for each one in this: running statistics then follow the
        given ones, the variance's without bias, as BatchNorm's do. Without it they stay.
    """
    calls: list[Call] = []
    layers = trained_layers(model)
    before: dict[nn.Module, Any] = {layer: vars(layer).get("forward") for _, layer in layers}
    for name, layer in layers:
        layer.forward = partial(_normalise, layer, name, given, batches, calls)  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        for layer, forward in before.items():
            del layer.forward
            if forward is not None:
                layer.forward = forward


def _normalise(
    layer: BatchNorm,
    name: str,
    given: Statistics,
    batches: float | None,
    calls: list[Call],
    inputs: torch.Tensor,
) -> torch.Tensor:
    prefix = f"{len(calls)}:{name}." if name else f"{len(calls)}:"
    x = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
    over, shape = [0, *range(2, x.dim())], (-1, *[1] * (x.dim() - 2))
    own_mean = x.mean(over)
    mean = _constant(given, prefix + MEAN, own_mean)
    centred = x - mean.view(shape)
    own_variance = centred.square().mean(over)
    variance = _constant(given, prefix + VARIANCE, own_variance)
    calls.append(Call(prefix + MEAN, prefix + VARIANCE, own_mean, own_variance, mean, variance))
    if batches is not None:
        follow(layer, mean.detach(), variance.detach(), batches * x.numel() / x.shape[1])
    y = centred * torch.rsqrt(variance + layer.eps).view(shape)
    if layer.affine:
        y = y * layer.weight.view(shape) + layer.bias.view(shape)
    return y.to(inputs.dtype)


def _constant(given: Statistics, name: str, own: torch.Tensor) -> torch.Tensor:
    return given[name].to(own).requires_grad_() if name in given else own

"""BatchNorm entries of a state dict, found by module type and never by name.

torchvision's ResNets, for example, name a BatchNorm ``downsample.1``. An InstanceNorm with running statistics
counts as a BatchNorm. One without them has no statistics of the data, like LayerNorm, and does not count.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..examples import Examples
from .arrays import aliases
from .lazy_torch import nn, torch
from .rng import seeded

BatchNorm: TypeAlias = (
    "nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm"
    " | nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d"
)


def batch_norm_modules(model: nn.Module) -> Iterator[tuple[str, BatchNorm]]:
    """Yield every BatchNorm under every name: a module used twice has two names in the state dict."""
    batch_norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    instance_norms = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, batch_norms) or (
            isinstance(module, instance_norms) and module.track_running_stats
        ):
            yield name, module


def pools(layer: BatchNorm) -> bool:
    """Whether a layer normalises by batch statistics and keeps running ones; an InstanceNorm does not."""
    return isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is not None


def _entries(model: nn.Module, statistics_only: bool) -> Iterator[str]:
    names = aliases(model)
    for prefix, module in batch_norm_modules(model):
        buffers = {name for name, _ in module.named_buffers(recurse=False)}
        for name in module.state_dict():
            if name in buffers or not statistics_only:
                entry = f"{prefix}.{name}" if prefix else name
                yield from names.get(entry, (entry,))


def batch_norm_layers(model: nn.Module) -> list[str]:
    """Return the names of all BatchNorm layers, including those without entries."""
    return [name for name, _ in batch_norm_modules(model)]


def batch_norm_statistics(model: nn.Module) -> frozenset[str]:
    """Return the names of running_mean, running_var and num_batches_tracked of every BatchNorm layer."""
    return frozenset(_entries(model, statistics_only=True))


def batch_norm_entries(model: nn.Module) -> frozenset[str]:
    """Return the names of all entries (weight, bias, statistics) of every BatchNorm layer."""
    return frozenset(_entries(model, statistics_only=False))


def estimate_statistics(
    model: nn.Module,
    examples: Examples,
    batch_size: int,
    seed: Sequence[int],
    still: Collection[str] = (),
) -> None:
    """Set the BatchNorm statistics of the model by one pass over unlabelled examples (AdaBN).

    Li et al. 2018, "Adaptive Batch Normalization for practical domain adaptation". The batches are shuffled,
    nearly even, and at most of size ``batch_size``. A statistic is the mean of the batches' statistics,
    weighted by their sizes. Layers that training would not update, and those named in ``still``, are
    unchanged. All other modules are in evaluation mode. A single example has no variance: the statistics are
    then unchanged.
    """
    if len(examples) < 2:
        return
    was_training = model.training
    model.train()
    layers = {
        module: module.momentum
        for name, module in batch_norm_modules(model)
        if module.training and module.track_running_stats and name not in still
    }
    model.eval()
    seen = dict.fromkeys(layers, 0)

    def count(layer: Any, inputs: tuple[torch.Tensor]) -> None:
        seen[layer] += len(inputs[0])
        layer.momentum = len(inputs[0]) / seen[layer]

    hooks = [layer.register_forward_pre_hook(count) for layer in layers]
    try:
        for layer in layers:
            layer.reset_running_stats()
        one_pass(model, layers, examples, batch_size, seed)
    finally:
        for layer, momentum in layers.items():
            layer.momentum = momentum
        for hook in hooks:
            hook.remove()
        model.train(was_training)


def follow(layer: BatchNorm, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
    """Move running statistics towards a batch's, with the unbiased variance, as BatchNorm does.

    ``mean`` and the biased ``variance`` (C,) are of ``count`` values per channel; one value has no variance.
    """
    if layer.momentum == 0 or count < 2:
        return
    assert layer.num_batches_tracked is not None
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.num_batches_tracked.add_(1)
    share = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    layer.running_mean.lerp_(mean, share)
    layer.running_var.lerp_(variance * count / (count - 1), share)


def one_pass(
    model: nn.Module,
    layers: Iterable[nn.Module],
    examples: Examples,
    batch_size: int,
    seed: Sequence[int],
) -> None:
    """Pass once over examples, without gradient: ``layers`` in training mode, all else in evaluation mode.

    The batches are shuffled, nearly even, and at most of size ``batch_size``.
    """
    rng = np.random.default_rng(list(seed))
    order = rng.permutation(len(examples))
    model.eval()
    for layer in layers:
        layer.training = True
    with torch.no_grad(), seeded(int(rng.integers(2**63))):
        for inputs, _ in examples.load(np.array_split(order, math.ceil(len(order) / batch_size))):
            model(inputs)

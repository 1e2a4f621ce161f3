"""BatchNorm entries of a state dict, told by module type and never by name.

torchvision's ResNets, for one, name a BatchNorm ``downsample.1``.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from .examples import Examples


def _entries(model: nn.Module, statistics_only: bool) -> Iterator[str]:
    # remove_duplicate=False: a module used in two places has two names in the state dict.
    for prefix, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, _BatchNorm):
            buffers = {name for name, _ in module.named_buffers(recurse=False)}
            for name in module.state_dict():
                if name in buffers or not statistics_only:
                    yield f"{prefix}.{name}" if prefix else name


def batch_norm_statistics(model: nn.Module) -> frozenset[str]:
    """Names of running_mean, running_var and num_batches_tracked of every BatchNorm layer."""
    return frozenset(_entries(model, statistics_only=True))


def batch_norm_entries(model: nn.Module) -> frozenset[str]:
    """Names of all entries (weight, bias, statistics) of every BatchNorm layer."""
    return frozenset(_entries(model, statistics_only=False))


def estimate_statistics(model: nn.Module, examples: Examples, batch_size: int) -> None:
    """Set the BatchNorm statistics of the model by one pass over unlabelled examples (AdaBN).

    Li et al. 2018, "Adaptive Batch Normalization for practical domain adaptation"; each batch counts alike.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # torch's word for the cumulative average
    was_training = model.training
    model.train()
    try:
        with torch.no_grad():
            for images, _ in examples.load(examples.batches(batch_size)):
                model(images)
    finally:
        model.train(was_training)
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum

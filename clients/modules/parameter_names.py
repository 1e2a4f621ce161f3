"""The names of a model's tensors: a tied tensor has several."""

from __future__ import annotations

from collections.abc import Mapping

from .lazy_torch import nn


def trainable_names(model: nn.Module) -> list[str]:
    """Return every name of every trainable parameter; a tied one has several."""
    return [name for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad]


def aliases(model: nn.Module) -> Mapping[str, tuple[str, ...]]:
    """Return all names of each parameter and buffer, by each of its names."""
    names: dict[int, list[str]] = {}
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    for name, tensor in tensors:
        names.setdefault(id(tensor), []).append(name)
    return {name: tuple(names[id(tensor)]) for name, tensor in tensors}

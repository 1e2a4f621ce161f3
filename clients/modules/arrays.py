"""Tensors as NumPy arrays.

The names of a model's tensors: a tied tensor has several.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .lazy_torch import nn, torch


def to_array(entry: torch.Tensor) -> NDArray:
    """Return a copy on the CPU, in C order; see `viewed`."""
    array = viewed(entry)
    return np.array(array, order="C", copy=True if entry.device.type == "cpu" else None)


def viewed(entry: torch.Tensor) -> NDArray:
    """Return the entry as an array, which shares its memory on the CPU.

    One in bfloat16, which NumPy lacks, becomes float32, in which each of its values is exact.
    """
    known = entry.float() if entry.dtype == torch.bfloat16 else entry
    return known.detach().cpu().numpy()


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

"""Tensors as NumPy arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .lazy_torch import torch


def to_array(entry: torch.Tensor) -> NDArray:
    """Return a copy on the CPU, in C order; see `viewed`."""
    return np.array(viewed(entry), order="C")


def viewed(entry: torch.Tensor) -> NDArray:
    """Return the entry as an array, which shares its memory on the CPU.

    One in bfloat16, which NumPy lacks, becomes float32, in which each of its values is exact.
    """
    known = entry.float() if entry.dtype == torch.bfloat16 else entry
    return known.detach().cpu().numpy()

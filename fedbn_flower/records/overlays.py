"""Slices of some held-out images with both of their masks, and the file that has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from ..core.free_memory import regular
from .array_file import array_file

OVERLAYS_FILE = "overlays.safetensors"
IMAGE, REFERENCE, PREDICTION, ROWS, DICE = "image", "reference", "prediction", "rows", "dice"
MOST_SITES = 12
"""How many sites have slices in the file: the first ones."""

Overlays = Mapping[str, NDArray]
"""Of one site's cases, best first: ``image``, uint8 (n, channels, height, width), ``reference`` and
``prediction``, uint8 (n, height, width), ``rows``, int64 (n,), and ``dice``, float64 (n,)."""


def overlays_file(found: Mapping[int, Overlays]) -> bytes:
    """Return the content of ``overlays.safetensors`` of clients by partition; empty without any.

    An array is called ``PARTITION/NAME``.
    """
    arrays = {
        f"{partition}/{name}": array
        for partition, overlays in list(found.items())[:MOST_SITES]
        for name, array in overlays.items()
    }
    return array_file(OVERLAYS_FILE, arrays) if arrays else b""


def overlays_of(folder: Path) -> dict[int, dict[str, NDArray]]:
    """Return the slices in a run's folder by partition; empty without the file."""
    try:
        arrays = load_file(regular(folder / OVERLAYS_FILE))
    except (OSError, SafetensorError):
        return {}
    found: dict[int, dict[str, NDArray]] = {}
    for key, array in arrays.items():
        partition, name = key.split("/", 1)
        found.setdefault(int(partition), {})[name] = array
    return dict(sorted(found.items()))


def in_8_bits(images: NDArray) -> NDArray[np.uint8]:
    """Return images (n, ...) of numbers as uint8, each stretched between its extremes; uint8 as it is."""
    if images.dtype == np.uint8:
        return images
    values = images.astype(np.float64)
    axes = tuple(range(1, values.ndim))
    low, high = values.min(axes, keepdims=True), values.max(axes, keepdims=True)
    spread = np.where(high > low, high - low, 1)
    return np.asarray(np.rint((values - low) * (255 / spread)), np.uint8)

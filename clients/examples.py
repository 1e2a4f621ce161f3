"""A client's examples: rows of a shared, memory-mapped array."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]
LOADED = 2**18  # values, gathered at a time


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled images.

    Parameters
    ----------
    images : NDArray
        uint8, shape (N, channels, height, width); may be memory-mapped and shared by many clients.
    labels : NDArray
        int64 class numbers, shape (N,).
    rows : NDArray
        int64, shape (n,): the rows of ``images`` and ``labels`` that these examples are.
    mean, std : tuple[float, ...]
        Per channel, of intensities in [0, 1]; an image becomes ``(image / 255 - mean) / std``.
    device : str
        Where batches are put: ``cpu`` or ``cuda``.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    rows: Indices
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    device: str = "cpu"

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, batch_size: int, rng: np.random.Generator | None = None) -> Iterator[Indices]:
        """Indices of one epoch in batches, shuffled if a generator is given; batch size 0 is one batch.

        A last batch of one example joins the one before it: BatchNorm cannot train on a single value.
        """
        count = len(self)
        order = np.arange(count) if rng is None else rng.permutation(count)
        size = batch_size or max(count, 1)
        starts = list(range(0, count, size))
        if size > 1 and len(starts) > 1 and count - starts[-1] == 1:
            starts.pop()
        for start, stop in zip(starts, [*starts[1:], count], strict=True):
            yield order[start:stop]

    def load(self, batches: Iterable[Indices]) -> Iterator[tuple[Tensor, Tensor]]:
        """Images, float32 (b, channels, height, width), and labels, int64 (b,), of each batch of indices."""
        for group in self._groups(batches):
            rows = self.rows[np.concatenate(group)]
            sizes = [len(indices) for indices in group]
            images = torch.split(self.scaled(self.images[rows]), sizes)
            labels = torch.split(torch.from_numpy(self.labels[rows]).to(self.device), sizes)
            yield from zip(images, labels, strict=True)

    def _groups(self, batches: Iterable[Indices]) -> Iterator[list[Indices]]:
        """As many batches at a time as make up `LOADED` values: fewer, larger operations."""
        group: list[Indices] = []
        count, size = 0, math.prod(self.images.shape[1:])
        for indices in batches:
            if group and (count + len(indices)) * size > LOADED:
                yield group
                group, count = [], 0
            group.append(indices)
            count += len(indices)
        if group:
            yield group

    def scaled(self, images: NDArray[np.uint8]) -> Tensor:
        """Images, uint8 (..., channels, height, width), as the model takes them."""
        values = torch.from_numpy(images).to(self.device).float().div_(255)
        if any(self.mean) or set(self.std) != {1.0}:
            mean, std = (torch.tensor(v, device=self.device).view(-1, 1, 1) for v in (self.mean, self.std))
            values.sub_(mean).div_(std)
        return values

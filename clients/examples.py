"""A client's examples: rows of named columns, which many clients share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .modules.lazy_torch import torch

Indices = NDArray[np.int64]
Columns = Mapping[str, NDArray]
Prepare = Callable[[Mapping[str, "torch.Tensor"]], tuple["torch.Tensor", "torch.Tensor"]]
"""Turns rows of columns, on the device, into a batch: the model's inputs and the targets."""
Augment = Callable[["torch.Tensor", "torch.Tensor"], tuple["torch.Tensor", "torch.Tensor"]]
LOADED = 2**18  # values gathered at a time
UPLOADED = 2**24  # of examples that stay on a GPU
FREE = 0.5
"""The share of a GPU's memory that is still free when examples have got their place on it: for the models of
a cohort, what is computed of them, and other processes."""


def has_room(device: str, size: int) -> bool:
    """Whether a GPU has room for so many bytes of examples for good; no other device has."""
    if torch.device(device).type != "cuda":
        return False
    free, total = torch.cuda.mem_get_info()
    return free - size >= FREE * total


def as_they_are(columns: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the columns ``x`` and ``y`` unchanged."""
    return columns["x"], columns["y"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Some rows of a dataset.

    Parameters
    ----------
    columns : Mapping[str, NDArray]
        Arrays of equal length N and any dtype; may be memory-mapped and shared by many clients.
    rows : NDArray
        int64, shape (n,): row numbers of these examples.
    prepare : Prepare
        Turns rows into inputs and targets.
    augment : Augment, optional
        Augments a training batch, its inputs and targets, using torch's generator.
    device : str
        Device of the batches: ``cpu`` or ``cuda``.
    """

    columns: Columns
    rows: Indices
    prepare: Prepare = as_they_are
    augment: Augment | None = None
    device: str = "cpu"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """Number of values per row, over all columns."""
        return sum(math.prod(column.shape[1:]) for column in self.columns.values())

    def batches(self, batch_size: int, rng: np.random.Generator | None = None) -> Iterator[Indices]:
        """Yield the indices of one epoch in batches, shuffled if ``rng`` is given; batch size 0 is one batch.

        A last batch of one example is added to the one before it: BatchNorm cannot train on one value.
        """
        count = len(self)
        order = np.arange(count) if rng is None else rng.permutation(count)
        starts = self._starts(batch_size)
        for start, stop in zip(starts, [*starts[1:], count], strict=True):
            yield order[start:stop]

    def num_batches(self, batch_size: int) -> int:
        """Return the number of batches of an epoch."""
        return len(self._starts(batch_size))

    def _starts(self, batch_size: int) -> list[int]:
        count = len(self)
        size = batch_size or max(count, 1)
        starts = list(range(0, count, size))
        if size > 1 and len(starts) > 1 and count - starts[-1] == 1:
            starts.pop()
        return starts

    def load(
        self, batches: Iterable[Indices], training: bool = False
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield inputs and targets, each (b, ...), of each batch of indices; augmented for training."""
        for group in self._groups(batches):
            sizes = [len(indices) for indices in group]
            inputs, targets = self.prepare(self.taken(np.concatenate(group)))
            for batch, labels in zip(torch.split(inputs, sizes), torch.split(targets, sizes), strict=True):
                yield self.augment(batch, labels) if training and self.augment else (batch, labels)

    @cached_property
    def targets(self) -> torch.Tensor:
        """The targets of all examples, (n, ...); cached."""
        groups = self._groups(np.array_split(np.arange(len(self)), max(1, math.ceil(len(self) / 1000))))
        return torch.cat([self.prepared(np.concatenate(group))[1] for group in groups])

    def prepared(self, indices: Indices) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of the examples of these indices."""
        return self.prepare(self.gathered(self.rows[indices]))

    def gathered(self, rows: Indices) -> dict[str, torch.Tensor]:
        """Return rows of the columns, unprepared, on the device."""
        return {name: torch.from_numpy(column[rows]).to(self.device) for name, column in self.columns.items()}

    def taken(self, indices: Indices) -> dict[str, torch.Tensor]:
        """Return the columns of the examples of these indices, unprepared, on the device."""
        if self.held is None:
            return self.gathered(self.rows[indices])
        places = torch.from_numpy(indices).to(self.device)
        return {name: column[places] for name, column in self.held.items()}

    @cached_property
    def held(self) -> dict[str, torch.Tensor] | None:
        """The columns of all examples on a GPU, there as long as this object is; None without room for them.

        They are sent when they are first asked for, and must not change afterwards.
        """
        columns = self.columns.values()
        size = len(self) * sum(c.itemsize * math.prod(c.shape[1:]) for c in columns)
        wide = any(c.dtype.kind == "u" and c.itemsize > 1 for c in columns)  # PyTorch hardly knows them
        if wide or not has_room(self.device, size):
            return None
        try:
            return self._sent()
        except torch.OutOfMemoryError:  # another process was quicker
            return None

    def _sent(self) -> dict[str, torch.Tensor]:
        with torch.inference_mode(False):  # an evaluation may be the first to ask
            like = self.gathered(self.rows[:0])
            sent = {name: some.new_empty((len(self), *some.shape[1:])) for name, some in like.items()}
            step = max(1, UPLOADED // max(1, self.width))
            for start in range(0, len(self), step):
                for name, part in self.gathered(self.rows[start : start + step]).items():
                    sent[name][start : start + step] = part
        return sent

    def _groups(self, batches: Iterable[Indices]) -> Iterator[list[Indices]]:
        """Group batches up to `LOADED` values: fewer, larger operations."""
        group: list[Indices] = []
        count, width = 0, self.width
        for indices in batches:
            if group and (count + len(indices)) * width > LOADED:
                yield group
                group, count = [], 0
            group.append(indices)
            count += len(indices)
        if group:
            yield group

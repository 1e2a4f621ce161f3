"""A client's examples: rows of named columns that many clients share."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]
Columns = Mapping[str, NDArray]
Prepare = Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor]]
"""From rows of columns, on the device, to a batch: the model's inputs and the targets."""
Augment = Callable[[Tensor], Tensor]
LOADED = 2**18  # values, gathered at a time


def as_they_are(columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The columns ``x`` and ``y`` themselves."""
    return columns["x"], columns["y"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Some rows of a dataset.

    Parameters
    ----------
    columns : Mapping[str, NDArray]
        Arrays of one length N, any dtype; may be memory-mapped and shared by many clients.
    rows : NDArray
        int64, shape (n,): the rows of the columns that these examples are.
    prepare : Prepare
        Turns rows into inputs and targets.
    augment : Augment, optional
        Changes the inputs of a training batch, drawing from torch's generator.
    device : str
        Where batches are put: ``cpu`` or ``cuda``.
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
        """Values that a row has in all columns together."""
        return sum(math.prod(column.shape[1:]) for column in self.columns.values())

    def batches(self, batch_size: int, rng: np.random.Generator | None = None) -> Iterator[Indices]:
        """Indices of one epoch in batches, shuffled if a generator is given; batch size 0 is one batch.

        A last batch of one example joins the one before it: BatchNorm cannot train on a single value.
        """
        count = len(self)
        order = np.arange(count) if rng is None else rng.permutation(count)
        starts = self._starts(batch_size)
        for start, stop in zip(starts, [*starts[1:], count], strict=True):
            yield order[start:stop]

    def num_batches(self, batch_size: int) -> int:
        """How many batches an epoch has."""
        return len(self._starts(batch_size))

    def _starts(self, batch_size: int) -> list[int]:
        count = len(self)
        size = batch_size or max(count, 1)
        starts = list(range(0, count, size))
        if size > 1 and len(starts) > 1 and count - starts[-1] == 1:
            starts.pop()
        return starts

    def load(self, batches: Iterable[Indices], training: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets of each batch of indices, their first axis the batch; augmented for training."""
        for group in self._groups(batches):
            sizes = [len(indices) for indices in group]
            inputs, targets = self.prepared(np.concatenate(group))
            for batch, answers in zip(torch.split(inputs, sizes), torch.split(targets, sizes), strict=True):
                yield self.augment(batch) if training and self.augment else batch, answers

    @cached_property
    def targets(self) -> Tensor:
        """The targets of all examples, (n, ...); kept."""
        groups = self._groups(np.array_split(np.arange(len(self)), max(1, math.ceil(len(self) / 1000))))
        return torch.cat([self.prepared(np.concatenate(group))[1] for group in groups])

    def prepared(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Inputs and targets of some of the examples."""
        return self.prepare(self.gathered(self.rows[indices]))

    def gathered(self, rows: Indices) -> dict[str, Tensor]:
        """Rows of the columns, as they are, on the device."""
        return {name: torch.from_numpy(column[rows]).to(self.device) for name, column in self.columns.items()}

    def _groups(self, batches: Iterable[Indices]) -> Iterator[list[Indices]]:
        """As many batches at a time as make up `LOADED` values: fewer, larger operations."""
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

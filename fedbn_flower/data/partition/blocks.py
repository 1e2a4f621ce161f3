"""Rows that stay together: blocks, which are divided as rows are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..splits import numbered
from ..splits.groups import usual
from .shares import Rows, Shares


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows in blocks: block i is ``rows[starts[i]:starts[i] + sizes[i]]``.

    Parameters
    ----------
    rows : Rows
        All of them, block after block.
    starts, sizes : Rows
        Of each block, int64 (blocks,).
    """

    rows: Rows
    starts: Rows
    sizes: Rows

    @classmethod
    def of(cls, rows: Rows, units: Rows | None) -> Blocks:
        """Return the rows of each unit as a block, in the order in which they first occur; else each row."""
        if units is None:
            return cls(rows, np.arange(len(rows)), np.ones(len(rows), np.int64))
        numbers = numbered(units[rows])
        sizes = np.bincount(numbers)
        return cls(rows[np.argsort(numbers, kind="stable")], np.cumsum(sizes) - sizes, sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def first(self) -> Rows:
        """The first row of each block."""
        return self.rows[self.starts]

    def usual(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the most frequent label of each block's rows; ``labels`` are those of all rows there are."""
        if len(self) == len(self.rows):
            return labels[self.rows]
        most: NDArray[np.int64] = usual(labels[self.rows], np.repeat(np.arange(len(self)), self.sizes))
        return most

    def expanded(self, shares: Shares) -> Shares:
        """Return the rows of the blocks that the clients have."""
        sizes = self.sizes[shares.rows]
        stops = np.cumsum(sizes)
        offsets = np.repeat(self.starts[shares.rows] - (stops - sizes), sizes)
        bounds = np.concatenate([[0], stops])
        rows = self.rows[offsets + np.arange(len(offsets))]
        return Shares(rows, bounds[shares.starts], bounds[shares.stops])

"""The rows of every client, kept as three arrays however many clients there are; and rows in blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from ..splits.groups import numbered, usual

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shares(Sequence[Rows]):
    """A sequence of the clients' rows: ``rows[starts[i]:stops[i]]`` are those of client i.

    Parameters
    ----------
    rows : Rows
        Those of all clients.
    starts, stops : Rows
        The places of each client's rows there, int64 (clients,).
    """

    rows: Rows
    starts: Rows
    stops: Rows

    @classmethod
    def cut(cls, rows: Rows, sizes: Rows) -> Shares:
        """Give each client, in turn, the next of the rows, as many as its size says."""
        stops = np.cumsum(sizes, dtype=np.int64)
        return cls(rows, stops - sizes, stops)

    @classmethod
    def of(cls, parts: Sequence[Rows]) -> Shares:
        """Join the rows of each client."""
        return cls.cut(np.concatenate(parts), np.array([len(part) for part in parts], np.int64))

    def __len__(self) -> int:
        return len(self.stops)

    @overload
    def __getitem__(self, client: int) -> Rows: ...
    @overload
    def __getitem__(self, client: slice) -> Sequence[Rows]: ...
    def __getitem__(self, client: int | slice) -> Rows | Sequence[Rows]:
        if isinstance(client, slice):
            return [self[i] for i in range(len(self))[client]]
        return self.rows[self.starts[client] : self.stops[client]]

    def __iter__(self) -> Iterator[Rows]:
        return (self[i] for i in range(len(self)))

    @property
    def sizes(self) -> Rows:
        """The number of each client's rows, int64 (clients,)."""
        return self.stops - self.starts

    def among(self, rows: Rows) -> Shares:
        """Return the shares of ``rows`` whose positions these are."""
        return Shares(rows[self.rows], self.starts, self.stops)

    def within(self, rows: Rows) -> Shares:
        """Return the shares that the clients have of these rows, in the order of theirs."""
        client = np.repeat(np.arange(len(self)), self.sizes)
        every = joined(self.rows, self.starts[:, None], self.sizes[:, None]).rows
        kept = np.isin(every, rows)
        return Shares.cut(every[kept], np.bincount(client[kept], minlength=len(self)).astype(np.int64))

    def with_all_but(self, others: Collection[int], rows: Rows) -> Shares:
        """Return the shares in which every client but ``others`` has the same ``rows``."""
        own = np.isin(np.arange(len(self)), list(others))
        starts, stops = (
            np.where(own, self.starts, len(self.rows)),
            np.where(own, self.stops, len(self.rows) + len(rows)),
        )
        return Shares(np.concatenate([self.rows, rows]), starts, stops)

    def counts(self, labels: NDArray[np.int64], classes: int) -> Rows:
        """Return the number of each client's rows of each class, int64 (clients, classes)."""
        found, which = self._distinct()
        lines = np.repeat(np.arange(len(found)), found.sizes) * classes
        counts = np.bincount(lines + labels[found.rows], minlength=len(found) * classes)
        return counts.reshape(len(found), classes)[which]

    def union(self, but: Collection[int] = ()) -> Rows:
        """Return the rows that any client has, ``but`` some, once each and in order."""
        kept = ~np.isin(np.arange(len(self)), list(but))
        rows = Shares(self.rows, self.starts[kept], self.stops[kept])._distinct()[0].rows
        used = np.zeros(rows.max() + 1, bool)
        used[rows] = True
        return np.flatnonzero(used)

    def _distinct(self) -> tuple[Shares, Rows]:
        """Return what differs between clients, who may have the same rows, and which of it each has."""
        slices, which = np.unique(np.stack([self.starts, self.sizes], 1), axis=0, return_inverse=True)
        return joined(self.rows, slices[:, :1], slices[:, 1:]), which.ravel()


def joined(rows: Rows, starts: Rows, sizes: Rows) -> Shares:
    """Join slices of ``rows``: client i gets, in order, ``rows[starts[i, j]:][: sizes[i, j]]`` for every j.

    ``starts`` and ``sizes`` have the shape (clients, slices).
    """
    begun = np.cumsum(sizes) - sizes.ravel()
    offsets = np.repeat(starts.ravel() - begun, sizes.ravel())
    return Shares.cut(rows[offsets + np.arange(len(offsets))], sizes.sum(1))


def even_sizes(count: int, parts: int) -> Rows:
    """Return the sizes of ``parts`` nearly even parts, as ``np.array_split`` cuts them, int64 (parts,)."""
    return count // parts + (np.arange(parts) < count % parts).astype(np.int64)


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

"""A client's memory between rounds."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray]
Groups = Mapping[str, Arrays]


class Store(Protocol):
    """Storage of a client's memory."""

    def read(self, group: str) -> dict[str, NDArray] | None:
        """Return the arrays of a group, or None if there are none."""

    def save(self, written: Groups) -> None:
        """Replace the groups of these names: all of them, or none if it raises."""


class Memory:
    """A client's memory: named groups of arrays.

    Writes take effect only with `commit`, so a call that fails leaves the memory unchanged.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: dict[str, dict[str, NDArray]] = {}

    def read(self, group: str) -> dict[str, NDArray] | None:
        """Return the arrays last written to this group, or None."""
        written = self._written.get(group)
        return self._store.read(group) if written is None else dict(written)

    def write(self, group: str, arrays: Arrays) -> None:
        """Replace the arrays of a group by copies of these."""
        self._written[group] = {name: np.array(array) for name, array in arrays.items()}

    def commit(self) -> None:
        """Save the written groups."""
        if self._written:
            self._store.save(self._written)
            self.discard()

    def discard(self) -> None:
        """Drop the groups written since the last `commit`."""
        self._written = {}


class ContextStore:
    """A memory in Flower's ``Context.state``, in the process.

    Parameters
    ----------
    state : RecordDict, optional
        Has each group as an ArrayRecord ``fedbn.GROUP``. Only saved groups change.
    """

    PREFIX = "fedbn."

    def __init__(self, state: RecordDict | None = None) -> None:
        self.state = RecordDict() if state is None else state

    def read(self, group: str) -> dict[str, NDArray] | None:
        """Return new arrays of a group, or None if there are none."""
        record = self.state.array_records.get(self.PREFIX + group)
        return None if record is None else {name: array.numpy() for name, array in record.items()}

    def save(self, written: Groups) -> None:
        """Replace the groups of these names."""
        records = {
            self.PREFIX + group: ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})
            for group, arrays in written.items()
        }
        self.state.update(records)

    def groups(self) -> dict[str, dict[str, NDArray]]:
        """Return all groups."""
        groups = [n.removeprefix(self.PREFIX) for n in self.state.array_records if n.startswith(self.PREFIX)]
        return {group: self.read(group) or {} for group in groups}

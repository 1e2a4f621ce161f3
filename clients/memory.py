"""What a client remembers between rounds."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray]
Groups = Mapping[str, Arrays]


class Store(Protocol):
    """Where a client's memory is kept."""

    def read(self, group: str) -> dict[str, NDArray] | None:
        """The arrays of a group, or None if there are none."""

    def save(self, written: Groups) -> None:
        """Put groups in the place of those of the same names: all of them, or none if it raises."""


class Memory:
    """The one owner of what a client remembers: named groups of arrays.

    What is written is kept only with `commit`, so that a call that fails half-way leaves the client as it
    was.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: dict[str, dict[str, NDArray]] = {}

    def read(self, group: str) -> dict[str, NDArray] | None:
        """The arrays last written under this name, or None."""
        written = self._written.get(group)
        return self._store.read(group) if written is None else dict(written)

    def write(self, group: str, arrays: Arrays) -> None:
        """Put copies of arrays in the place of what the group held."""
        self._written[group] = {name: np.array(array) for name, array in arrays.items()}

    def commit(self) -> None:
        """Keep what was written."""
        if self._written:
            self._store.save(self._written)
            self.discard()

    def discard(self) -> None:
        """Forget what was written since the last `commit`."""
        self._written = {}


class ContextStore:
    """A memory in the process: in Flower's ``Context.state``.

    Parameters
    ----------
    state : RecordDict, optional
        Groups stand in it as ArrayRecords under ``fedbn.GROUP``; only those that are saved change.
    """

    PREFIX = "fedbn."

    def __init__(self, state: RecordDict | None = None) -> None:
        self.state = RecordDict() if state is None else state

    def read(self, group: str) -> dict[str, NDArray] | None:
        """The arrays of a group, decoded anew, or None if there are none."""
        record = self.state.array_records.get(self.PREFIX + group)
        return None if record is None else {name: array.numpy() for name, array in record.items()}

    def save(self, written: Groups) -> None:
        """Put groups in the place of those of the same names."""
        records = {
            self.PREFIX + group: ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})
            for group, arrays in written.items()
        }
        self.state.update(records)

    def groups(self) -> dict[str, dict[str, NDArray]]:
        """The whole memory."""
        groups = [n.removeprefix(self.PREFIX) for n in self.state.array_records if n.startswith(self.PREFIX)]
        return {group: self.read(group) or {} for group in groups}

"""A client's memory between rounds."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray]
Groups = Mapping[str, Arrays]


class Store(Protocol):
    """Storage of a client's memory."""

    def read(self, group: str) -> dict[str, NDArray] | None:
        """Return the arrays of a group, or None if there are none."""

    def save(self, written: Groups) -> None:
        """Replace the groups of these names: all of them, or none if it raises."""

    @property
    def last_round(self) -> int:
        """The round of this run in which it was last saved; 0 if it was not, or that is unknown."""


class Memory:
    """A client's memory: named groups of arrays.

    Writes take effect only with `commit`, so a call that fails leaves the memory unchanged.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.found_round = store.last_round
        """The round whose memory the client found when it began; 0 if there was none."""
        self._written: dict[str, dict[str, NDArray]] = {}

    def read(self, group: str) -> dict[str, NDArray] | None:
        """Return the arrays last written to this group, or None."""
        written = self._written.get(group)
        return self._store.read(group) if written is None else dict(written)

    def write(self, group: str, arrays: Arrays) -> None:
        """Replace the arrays of a group by copies of these."""
        self._written[group] = {name: np.array(array) for name, array in arrays.items()}

    @property
    def written(self) -> frozenset[str]:
        """The names of the groups written since the last `commit`."""
        return frozenset(self._written)

    def commit(self) -> None:
        """Save the written groups."""
        if self._written:
            self._store.save(self._written)
            self.discard()

    @property
    def last_round(self) -> int:
        """The round of the last commit; 0 if there was none."""
        return self._store.last_round

    def discard(self) -> None:
        """Drop the groups written since the last `commit`."""
        self._written = {}


class ContextStore:
    """A memory in Flower's ``Context.state``, in the process.

    Parameters
    ----------
    state : RecordDict, optional
        Holds each group as an ArrayRecord ``fedbn.GROUP``. Only saved groups change.
    server_round : int
        The round in which it may be saved; 0 if it is not needed.
    """

    PREFIX = "fedbn."
    ROUND = "fedbn-round"

    def __init__(self, state: RecordDict | None = None, server_round: int = 0) -> None:
        self.state = RecordDict() if state is None else state
        self.server_round = server_round

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
        if self.server_round:
            self.state[self.ROUND] = ConfigRecord({self.ROUND: self.server_round})

    @property
    def last_round(self) -> int:
        """The round in which it was last saved; 0 if it was not, or that is unknown."""
        record = self.state.config_records.get(self.ROUND)
        found = record[self.ROUND] if record else 0
        assert isinstance(found, int)
        return found

    def groups(self) -> dict[str, dict[str, NDArray]]:
        """Return all groups."""
        groups = [n.removeprefix(self.PREFIX) for n in self.state.array_records if n.startswith(self.PREFIX)]
        return {group: self.read(group) or {} for group in groups}

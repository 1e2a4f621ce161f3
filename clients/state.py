"""What a client remembers between rounds."""

from collections.abc import Callable, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray
from safetensors.numpy import load, save

Arrays = Mapping[str, NDArray]


class ClientState:
    """The one owner of a client's memory: named groups of arrays, kept in Flower's ``Context.state``.

    What is written becomes visible in the Context only with `commit`, so that a call that fails half-way
    leaves the client as it was.

    Parameters
    ----------
    record : RecordDict
        ``context.state``. Groups stand in it as ArrayRecords under ``fedbn.GROUP``.
    save : callable, optional
        Called by `commit` with all `entries`, before it takes effect; may raise to prevent that.
    """

    PREFIX = "fedbn."

    def __init__(self, record: RecordDict, save: Callable[[Arrays], None] | None = None) -> None:
        self._record = record
        self._save = save
        self._written: dict[str, ArrayRecord] = {}

    def read(self, group: str) -> dict[str, NDArray] | None:
        """The arrays last written under this name, or None."""
        record = self._written.get(group) or self._record.array_records.get(self.PREFIX + group)
        return None if record is None else {name: a.numpy() for name, a in record.items()}

    def write(self, group: str, arrays: dict[str, NDArray]) -> None:
        """Put arrays in the place of what the group held."""
        self._written[group] = _record(arrays)

    def entries(self) -> dict[str, NDArray]:
        """Every array of every group, written ones included, as ``GROUP/NAME``, in C order."""
        groups = {n: r for n, r in self._record.array_records.items() if n.startswith(self.PREFIX)}
        groups |= {self.PREFIX + group: record for group, record in self._written.items()}
        return {
            f"{group.removeprefix(self.PREFIX)}/{name}": np.require(array.numpy(), requirements="C")
            for group, record in groups.items()
            for name, array in record.items()
        }

    def restore(self, entries: Arrays) -> None:
        """Put back, in the record itself, what `entries` gave."""
        groups: dict[str, dict[str, NDArray]] = {}
        for key, array in entries.items():
            group, name = key.split("/", 1)
            groups.setdefault(group, {})[name] = array
        for group, arrays in groups.items():
            self._record[self.PREFIX + group] = _record(arrays)

    def to_bytes(self) -> bytes:
        """All groups in safetensors format; empty if there are none."""
        entries = self.entries()
        return save(entries) if entries else b""

    def from_bytes(self, data: bytes) -> None:
        """Put back what `to_bytes` gave."""
        self.restore(load(data))

    def commit(self) -> None:
        """Make what was written part of the Context."""
        if self._save and self._written:
            self._save(self.entries())
        for group, record in self._written.items():
            self._record[self.PREFIX + group] = record
        self._written = {}


def _record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})

"""What a client remembers between rounds."""

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray
from safetensors.numpy import load, save


class ClientState:
    """The one owner of a client's memory: named groups of arrays, kept in Flower's ``Context.state``.

    What is written becomes visible in the Context only with `commit`, so that a call that fails half-way
    leaves the client as it was.

    Parameters
    ----------
    record : RecordDict
        ``context.state``. Groups stand in it as ArrayRecords under ``fedbn.GROUP``.
    """

    PREFIX = "fedbn."

    def __init__(self, record: RecordDict) -> None:
        self._record = record
        self._written: dict[str, ArrayRecord] = {}

    def read(self, group: str) -> dict[str, NDArray] | None:
        """The arrays last written under this name, or None."""
        record = self._written.get(group) or self._record.array_records.get(self.PREFIX + group)
        return None if record is None else {name: a.numpy() for name, a in record.items()}

    def write(self, group: str, arrays: dict[str, NDArray]) -> None:
        """Put arrays in the place of what the group held."""
        self._written[group] = ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})

    def to_bytes(self) -> bytes:
        """All committed groups in safetensors format; empty if there are none."""
        entries = {
            f"{group.removeprefix(self.PREFIX)}/{name}": np.ascontiguousarray(array.numpy()).reshape(
                array.shape
            )
            for group, record in self._record.array_records.items()
            if group.startswith(self.PREFIX)
            for name, array in record.items()
        }
        return save(entries) if entries else b""

    def from_bytes(self, data: bytes) -> None:
        """Take up and commit what `to_bytes` gave."""
        groups: dict[str, dict[str, NDArray]] = {}
        for key, array in load(data).items():
            group, name = key.split("/", 1)
            groups.setdefault(group, {})[name] = array
        for group, arrays in groups.items():
            self.write(group, arrays)
        self.commit()

    def commit(self) -> None:
        """Make what was written part of the Context."""
        for group, record in self._written.items():
            self._record[self.PREFIX + group] = record
        self._written = {}

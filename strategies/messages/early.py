"""Keep answers that arrive before their turn: a few in memory, the arrays of others in a file."""

import tempfile
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import IO

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict

from .npy import array_bytes
from .validation import LOGGER

IN_MEMORY = 2**28
"""Bytes of arrays that wait for their turn in memory."""


class EarlyAnswers:
    """Keeps the answers of a phase until their turn.

    The file is unnamed, in the temporary folder (``TMPDIR``), and is removed with this object. If it cannot
    be written, answers stay in memory, with a warning. Answers are not left at the SuperLink until their
    turn, because Flower replaces the answer of a node that goes offline by an error.

    Parameters
    ----------
    in_memory : int
        The most bytes of arrays in memory; an answer that would exceed it is written to the file.

    Attributes
    ----------
    bytes_held : int
        The bytes of the arrays in memory.
    """

    def __init__(self, in_memory: float = IN_MEMORY) -> None:
        self.bytes_held = 0
        self._in_memory = in_memory
        self._replies: dict[int, Message] = {}
        self._sizes: dict[int, int] = {}  # of those in memory
        self._places: dict[int, list[tuple[int, int]]] = {}  # where each array lies: offset and length
        self._file: IO[bytes] | None = None
        self._end = 0

    def __contains__(self, position: int) -> bool:
        return position in self._replies

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._replies))

    def put(self, position: int, reply: Message) -> None:
        """Keep the answer to the message at this position."""
        self._replies[position] = reply
        size = array_bytes(reply.content) if reply.has_content() else 0
        if self.bytes_held + size > self._in_memory:
            try:
                self._write(position, reply)
            except OSError as error:
                self._in_memory = float("inf")
                LOGGER.warning("answers before their turn stay in memory: no temporary file (%s)", error)
            else:
                return
        self._sizes[position] = size
        self.bytes_held += size

    def take(self, position: int) -> Message:
        """Return an answer and forget it."""
        reply = self._replies.pop(position)
        self.bytes_held -= self._sizes.pop(position, 0)
        if position in self._places:
            places = self._places.pop(position)
            reply.content = _with_data(reply.content, (self._read(*place) for place in places))
        return reply

    def _write(self, position: int, reply: Message) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        places, end = [], self._end
        for record in reply.content.values():  # array_records would make a cycle, which keeps the arrays
            for array in record.values() if isinstance(record, ArrayRecord) else ():
                places.append((end, len(array.data)))
                end += _written(self._file, places[-1][0], array.data)
        reply.content = _with_data(reply.content, repeat(b""))  # others may hold the arrays themselves
        self._places[position], self._end = places, end

    def _read(self, offset: int, length: int) -> bytes:
        assert self._file
        self._file.seek(offset)
        return np.fromfile(self._file, np.uint8, length).tobytes()


def _written(file: IO[bytes], offset: int, data: bytes) -> int:
    """Write the data to an unbuffered file, which may take less at a time; return their length."""
    file.seek(offset)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    return len(data)


def _with_data(content: RecordDict, parts: Iterable[bytes]) -> RecordDict:
    """Return the records with other data in their arrays, in order; an array may be in several places."""
    data = iter(parts)
    return RecordDict(
        {
            name: ArrayRecord({k: Array(a.dtype, a.shape, a.stype, next(data)) for k, a in record.items()})
            if isinstance(record, ArrayRecord)
            else record
            for name, record in content.items()
        }
    )

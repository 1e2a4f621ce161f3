"""Arrays on the wire, without the copies and the parsing of ``np.save`` and ``np.load``."""

from functools import lru_cache
from io import BytesIO

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

NUMPY = Array(np.empty(0)).stype
"""What Flower calls the format that `np.save` writes."""


def encoded(array: NDArray) -> Array:
    """``Array(array)``, byte for byte, for an array in C order."""
    contiguous = np.ascontiguousarray(array).reshape(-1)
    data = b"".join((_header(array.shape, array.dtype.str), contiguous.data))
    return Array(str(array.dtype), array.shape, NUMPY, data)


def encoded_bytes(array: NDArray) -> int:
    """How long the data of ``encoded(array)`` are."""
    return len(_header(array.shape, array.dtype.str)) + array.nbytes


def array_bytes(content: RecordDict) -> int:
    """What all arrays of a message take on the wire, as they are encoded: npy headers, of 128 bytes or
    more, included."""
    records = (record for record in content.values() if isinstance(record, ArrayRecord))
    return sum(len(array.data) for record in records for array in record.values())


def decoded(array: Array, expected: NDArray) -> NDArray:
    """``array.numpy()``; read in place, and read-only, if it has the shape and dtype of ``expected``."""
    header = _header(expected.shape, expected.dtype.str)
    if array.stype == NUMPY and array.data[: len(header)] == header:  # bytes, or a view of them
        return np.frombuffer(array.data, expected.dtype, offset=len(header)).reshape(expected.shape)
    return array.numpy()


@lru_cache(maxsize=4096)
def _header(shape: tuple[int, ...], dtype: str) -> bytes:
    file = BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()

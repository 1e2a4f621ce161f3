"""Encode and decode arrays without the copies and the parsing of ``np.save`` and ``np.load``; bfloat16."""

from functools import lru_cache
from io import BytesIO

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray


def upper_halves(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return numbers rounded to the nearest of 16 bits, ties to even; finite ones stay finite, NaN is NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    down = (bits >> 16).astype(np.uint16)  # towards 0
    overflows = np.isfinite(values) & ((rounded & 0x7F80) == 0x7F80)
    return np.where(np.isnan(values), down | 0x40, np.where(overflows, down, rounded)).astype(np.uint16)


def from_upper_halves(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the float32 numbers of the same shape that `upper_halves` rounded to."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


BF16 = "bfloat16"
"""Our name for the format of `rounded`, which only `decoded` and `viewed` know."""
NUMPY = Array(np.empty(0)).stype
"""Flower's name for the format of `np.save`."""


def encoded(array: NDArray) -> Array:
    """Return ``Array(array)``, byte for byte the same, for an array in C order."""
    contiguous = np.ascontiguousarray(array).reshape(-1)
    data = b"".join((_header(array.shape, array.dtype.str), contiguous.data))
    return Array(str(array.dtype), array.shape, NUMPY, data)


def encoded_bytes(array: NDArray) -> int:
    """Return the length in bytes of the data of ``encoded(array)``."""
    return len(_header(array.shape, array.dtype.str)) + array.nbytes


def array_bytes(content: RecordDict) -> int:
    """Return the size in bytes of all encoded arrays of a message, with their npy headers (>= 128 bytes)."""
    records = (record for record in content.values() if isinstance(record, ArrayRecord))
    return sum(len(array.data) for record in records for array in record.values())


def rounded(array: Array) -> Array:
    """Return an array rounded to bfloat16, 2 bytes per number; arrays other than float32 unchanged."""
    if array.dtype != "float32":
        return array
    return Array(array.dtype, array.shape, BF16, upper_halves(viewed(array)).tobytes())


def viewed(array: Array) -> NDArray:
    """Return ``array.numpy()``, as a read-only view if its data are what `encoded` makes; see `decoded`."""
    return decoded(array, np.broadcast_to(np.empty((), array.dtype), array.shape))


def decoded(array: Array, expected: NDArray) -> NDArray:
    """Return ``array.numpy()``: a read-only view if it has the shape and dtype of ``expected``.

    A `rounded` array is decoded to float32.
    """
    if array.stype == BF16:
        return from_upper_halves(np.frombuffer(array.data, np.uint16)).reshape(array.shape)
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

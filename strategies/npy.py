"""Arrays on the wire, without the copies and the parsing of ``np.save`` and ``np.load``."""

from functools import lru_cache
from io import BytesIO

import numpy as np
from flwr.app import Array
from flwr.common.constant import SType
from numpy.typing import NDArray


def encoded(array: NDArray) -> Array:
    """``Array(array)``, byte for byte, for an array in C order."""
    contiguous = np.ascontiguousarray(array).reshape(-1)
    data = b"".join((_header(array.shape, array.dtype.str), contiguous.data))
    return Array(str(array.dtype), array.shape, SType.NUMPY, data)


def decoded(array: Array, expected: NDArray) -> NDArray:
    """``array.numpy()``; read in place, and read-only, if it has the shape and dtype of ``expected``."""
    header = _header(expected.shape, expected.dtype.str)
    if array.stype == SType.NUMPY and array.data[: len(header)] == header:  # bytes, or a view of them
        return np.frombuffer(array.data, expected.dtype, offset=len(header)).reshape(expected.shape)
    return array.numpy()


@lru_cache(maxsize=4096)
def _header(shape: tuple[int, ...], dtype: str) -> bytes:
    file = BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()

"""Arrays as the content of a safetensors file. All that is written in this format is made here."""

import json
import logging
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save

from ..core.process_cache import process_cache

AT_A_TIME = 2**20
"""Bytes that are compared at a time: a server has many models in memory as it is."""
LOGGER = logging.getLogger("flwr.fedbn")


def writable(file: str, arrays: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Return the arrays that a file can hold, in C order and native byte order; warn of the others, once.

    Parameters
    ----------
    file : str
        The file's name, for the warning.
    arrays : Mapping[str, NDArray]
        Arrays by name, of any dtype and strides.
    """
    given = {name: np.asarray(array) for name, array in arrays.items()}
    if lacking := [f"{name!r} ({a.dtype})" for name, a in given.items() if not _has(a.dtype)]:
        _warn(f"{file} is written without {', '.join(lacking)}: the format has no such numbers")
    return {
        name: a.astype(a.dtype.newbyteorder("="), order="C", copy=False)
        for name, a in given.items()
        if _has(a.dtype)
    }


def array_file(file: str, arrays: Mapping[str, NDArray], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a file of these arrays, which has been read back and compared; see `writable`.

    Raises
    ------
    OSError
        When what is read differs from what was to be written.
    """
    ready = writable(file, arrays)
    content = save(ready, None if metadata is None else dict(metadata))
    if wrong := _differing(content, ready):
        raise OSError(f"{file}: what is read of {wrong[0]!r} is not what was to be written")
    return content


def _differing(content: bytes, arrays: Mapping[str, NDArray]) -> list[str]:
    """Return the names of arrays that a file has otherwise. Its bytes are not copied, as a reader would."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])

    def is_in(name: str, array: NDArray) -> bool:
        first, last = header[name]["data_offsets"]
        found = np.frombuffer(content, np.uint8, last - first, start + first)
        wanted = array.reshape(-1).view(np.uint8)
        parts = [slice(i, i + AT_A_TIME) for i in range(0, len(wanted), AT_A_TIME)]
        return (header[name]["shape"], len(found)) == (list(array.shape), len(wanted)) and all(
            np.array_equal(found[part], wanted[part]) for part in parts
        )

    return [name for name, array in arrays.items() if not is_in(name, array)]


@process_cache(maxsize=64)
def _has(dtype: np.dtype) -> bool:
    try:
        save({"": np.empty(0, dtype)})
    except (SafetensorError, ValueError, TypeError, KeyError):  # as of text, and of objects
        return False
    return True


@process_cache(maxsize=64)
def _warn(line: str) -> None:
    LOGGER.warning("%s", line)

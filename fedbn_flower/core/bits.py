"""Compare nested values to the bit."""

from collections.abc import Mapping

import numpy as np


def comparable(value: object) -> object:
    """Return a value that is equal for equal bits.

    NaN would not be, and arrays have no one answer. ``value`` may hold mappings, lists, arrays and scalars.
    """
    if isinstance(value, Mapping):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.shape, value.dtype.str, value.tobytes()
    return repr(value)

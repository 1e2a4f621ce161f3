"""Where each example comes from, as a person finds it again: a file and its row, or the path of a picture.

It is kept as UTF-8 of one length for all rows, so that it is mapped into memory like any column. A clinic's
names stand in it, so that no message to the server ever has it.
"""

import os

import numpy as np
from numpy.typing import NDArray

Origins = NDArray[np.bytes_]
"""UTF-8, (N,); empty where nothing is known."""


def of_rows(name: str, rows: NDArray[np.int64]) -> Origins:
    """Return ``NAME:ROW``, with rows as a spreadsheet program shows them: from 1 on, and a header is one."""
    return np.strings.add(os.fsencode(f"{name}:"), rows.astype(np.bytes_))


def of_items(name: str, items: int | NDArray[np.int64]) -> Origins:
    """Return ``NAME[ITEM]``, with items as Python counts them, from 0 on: so many, or these."""
    numbers = np.arange(items) if isinstance(items, int) else items
    return np.strings.add(np.strings.add(os.fsencode(f"{name}["), numbers.astype(np.bytes_)), b"]")

"""Points that separate thousands, in columns that read as decimals: ``1.234`` beside ``850``."""

import re

import numpy as np

from ....core.errors import UserError
from .table_file import ReadTable

POINTED = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
WHOLE = re.compile(r"[+-]?\d{1,3}")
LEAST = 3
"""Distinct numbers of either form, below which they say nothing."""
FIRST = 100
"""Rows by which most columns are known to be others."""
MOST = 0.9
"""The share of the whole numbers that are greater than all others, if points separate thousands."""


def refuse_thousands(part: ReadTable, name: str) -> None:
    """Refuse numbers of a text file, such as ``1.234``, whose points probably separate thousands.

    Those with a point then have exactly three digits behind it, and the others, below 1000, hardly any: as
    decimals nearly all of these are greater than all of those; or they have three digits, and some of those
    a zero at their end, which decimals without a point beside them have lost.

    Raises
    ------
    UserError
        Says how to write them in either case.
    """
    if not part.layout or name not in part.frame or part.frame[name].dtype.kind != "f":
        return
    column = part.frame[name].dropna()
    for some in (column.head(FIRST), column):
        values = np.abs(some.unique())
        if not len(values) or values.max() >= 1000 or not _are_thousandths(values):
            return
    texts = part.texts([name])[name]
    pointed = [word for word in texts if POINTED.fullmatch(word)]
    whole = [word for word in texts if WHOLE.fullmatch(word) and float(word)]
    if min(len(pointed), len(whole)) < LEAST or any("." in word for word in {*texts} - {*pointed}):
        return
    highest, sizes = max(abs(float(word)) for word in pointed), np.abs(np.array(whole, np.float64))
    fixed = any(word.endswith("0") for word in pointed) and sizes.min() >= 100
    if fixed or np.mean(sizes > highest) >= MOST:
        one, other = pointed[0], max(whole, key=float)
        found = f"dataset: {str(part.path)!r}: {name!r} holds {one!r} and {other!r}"
        way = f"write {one.replace('.', '')}, else {other}.000, and so all of its numbers"
        raise UserError(f"{found}; if points separate thousands, {way}")


def _are_thousandths(values: np.ndarray) -> bool:
    """Return whether all numbers have three decimals at most."""
    thousandths = values * 1000
    return bool((np.abs(thousandths - np.rint(thousandths)) < 1e-6).all())

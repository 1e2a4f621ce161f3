"""Groups of examples, such as those of a patient, that stay together in every split: ``--group-column``.

A group is a value of a column, or what a pattern finds in a picture's path. `Dataset` keeps its number for
each row as the row's unit, as ``dp-unit`` has it: there is one mechanism for both.
"""

import re

import numpy as np
from numpy.typing import NDArray

from ...core.errors import not_allowed
from ...core.text import GROUPS, in_lower_case

PATIENT = "PatientID"
"""What DICOM files call a patient, of whom all pictures stay together without any key."""
BY_NAME = "name="
"""How a pattern of paths begins."""
OF_PERSON = re.compile(
    r"(case|customer|participant|patient|person|subject|user)(s?[ _-]?(code|id|key|no|nr|num|number))?"
    r"|mrn|pid|pat[ _-]?id"
)
"""One of people or cases, of whom there may be several rows; a plural alone says how many there are."""
MOST_AGAIN = 0.05
"""The share of an id's values that may occur again, as where a row stands twice."""
LEAST = 20
"""Distinct values, below which a column hardly says whose its rows are."""
PARTS = 5
"""In how many parts of equal size numbers are divided, to be spread evenly over the sides of a split."""

Rows = NDArray[np.int64]


def grouped_by(group_column: str, dp_unit: str, units: NDArray | None) -> str:
    """Return by what rows with such units stay together in every split; empty where each goes by itself."""
    return group_column or (PATIENT if units is not None and not dp_unit else "")


def is_of_people(name: str) -> bool:
    """Return whether a column is called as one that says of which person or case each row is."""
    return bool(OF_PERSON.fullmatch(in_lower_case(name)))


def are_shared(distinct: int, rows: int) -> bool:
    """Return whether several rows have the same of such values, and not as where a row stands twice."""
    return distinct >= LEAST and rows - distinct > MOST_AGAIN * rows


def pattern_of(key: str, text: str) -> re.Pattern[str] | None:
    """Return the pattern of a key's value; None where it names a column.

    Raises
    ------
    UserError
        When it is no regular expression with one group.
    """
    if not text.startswith(BY_NAME):
        return None
    try:
        pattern = re.compile(text.removeprefix(BY_NAME))
    except (re.error, OverflowError, RecursionError) as error:
        raise not_allowed(key, text, f"{GROUPS} ({error})") from None
    if pattern.groups != 1:
        raise not_allowed(key, text, f"{GROUPS}; it has {pattern.groups}")
    return pattern


def strata_of(targets: NDArray) -> Rows:
    """Return a number for each row's outcome, (N,): its class, its labels, or in which part its number is.

    All masks are alike, and so are rows of several fractions.
    """
    if targets.ndim > 2:
        return np.zeros(len(targets), np.int64)
    columns = targets.reshape(len(targets), -1)
    if columns.dtype.kind == "f" and columns.shape[1] == 1:
        bounds = np.quantile(columns, np.arange(1, PARTS) / PARTS) if len(columns) else []
        return np.searchsorted(bounds, columns[:, 0], "right")
    if columns.dtype.kind == "f" and (columns != np.floor(columns)).any():
        return np.zeros(len(columns), np.int64)
    return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)


def crossed(*codes: NDArray) -> Rows:
    """Return a number for each combination of what several arrays (N,) hold."""
    numbers = [np.unique(values, return_inverse=True)[1].reshape(-1) for values in codes]
    return np.unique(np.stack(numbers, 1), axis=0, return_inverse=True)[1].reshape(-1)


def usual(values: NDArray, groups: Rows) -> NDArray:
    """Return the most frequent value of each group, of groups numbered from 0 on; of equal ones the least."""
    pairs, counts = np.unique(np.stack([groups, values], 1), axis=0, return_counts=True)
    order = np.lexsort((pairs[:, 1], -counts, pairs[:, 0]))
    _, first = np.unique(pairs[order, 0], return_index=True)
    most: NDArray = pairs[order][first, 1]
    return most


def numbered(units: NDArray) -> NDArray[np.int64]:
    """Number values from 0 on, in the order in which they first occur, (N,)."""
    _, first, found = np.unique(units, return_index=True, return_inverse=True)
    rank: NDArray[np.int64] = np.argsort(np.argsort(first))
    return rank[found.reshape(-1)]

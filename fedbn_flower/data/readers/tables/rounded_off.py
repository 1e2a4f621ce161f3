"""What float32 rounds off a table's numbers."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...float32 import Distinct, facts_of, feature_of, may_lose
from ...notes import Note
from ...numeric import lost_targets, lost_values
from .column_text import Feature

BLOCK = 64
"""Columns that are looked at together."""

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def rounded_off(
    features: Sequence[Feature], table: "DataFrame", labels: Sequence[str]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any], tuple[Note, ...]]:
    """Return the column ``rest`` where there is one, the facts of `float32.Columns`, and notes.

    ``labels`` are the columns of numbers to predict.
    """
    rests: dict[int, NDArray[np.float32]] = {}
    lost: list[tuple[str, Distinct]] = []
    for place, name, numbers in _suspects(features, table):
        found = feature_of(numbers)
        if found.rest is not None:
            rests[place] = found.rest
        if found.distinct:
            lost.append((repr(name), found.distinct))
    columns = {"rest": np.stack(list(rests.values()), 1)} if rests else {}
    targets = lost_targets((repr(name), _numbers(table[name])) for name in labels)
    return columns, facts_of(list(rests), {}), (*targets, *lost_values(lost))


def _suspects(features: Sequence[Feature], table: "DataFrame") -> Iterator[tuple[int, str, NDArray]]:
    """Yield place, name and values of the columns of numbers that `may_lose` some."""
    starts = np.cumsum([0, *(feature.width for feature in features)]).tolist()
    numbers = [(start, f.name) for start, f in zip(starts, features, strict=False) if not f.values]
    if table.empty:
        return
    for first in range(0, len(numbers), BLOCK):
        some = numbers[first : first + BLOCK]
        columns = [_numbers(table[name]) for _, name in some]
        may = may_lose(np.array([column.astype(np.float64, copy=False) for column in columns]))
        for (start, name), column, suspected in zip(some, columns, may, strict=True):
            if suspected or column.dtype.kind in "iu":
                yield start, name, column


def _numbers(column: "Series") -> NDArray:
    """Return a column as whole numbers of its own type, or as float64 with NaN where a number is missing."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu":
        return np.asarray(column)
    return np.asarray(column.to_numpy(np.float64, na_value=np.nan))

"""What float32 rounds off a table's numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...notes import Note
from ...numeric import lost_targets, lost_values
from ...rounding import Distinct, facts_of, feature_of
from .features import Feature

if TYPE_CHECKING:
    from pandas import DataFrame, Series


def rounded_off(
    features: Sequence[Feature], table: "DataFrame", labels: Sequence[str]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any], tuple[Note, ...]]:
    """Return the column ``rest`` where there is one, the facts of `rounding.Columns`, and notes.

    ``labels`` are the columns of numbers to predict.
    """
    rests: dict[int, NDArray[np.float32]] = {}
    lost: list[tuple[str, Distinct]] = []
    start = 0
    for feature in features:
        if not feature.values:
            found = feature_of(_numbers(table[feature.name]))
            if found.rest is not None:
                rests[start] = found.rest
            if found.distinct:
                lost.append((repr(feature.name), found.distinct))
        start += feature.width
    columns = {"rest": np.stack(list(rests.values()), 1)} if rests else {}
    targets = lost_targets((repr(name), _numbers(table[name])) for name in labels)
    return columns, facts_of(list(rests), {}), (*targets, *lost_values(lost))


def _numbers(column: "Series") -> NDArray:
    """Return a column as whole numbers of its own type, or as float64 with NaN where a number is missing."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu":
        return np.asarray(column)
    return np.asarray(column.to_numpy(np.float64, na_value=np.nan))

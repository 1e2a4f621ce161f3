"""Compare the values of a table's column with a number or a date, as `split_by` and `subgroups` do."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError
from ...core.text import number_of

if TYPE_CHECKING:
    from pandas import Series

Bound = float | datetime
"""A date has no time zone: it is compared with dates as they are written."""
Values = NDArray[Any]


def bound_of(text: str) -> Bound | None:
    """Return the number or the date that a text is; None if it is none, or one with a time zone."""
    with suppress(ValueError):
        return None if isnan(number := float(text)) else number
    with suppress(ValueError):
        return None if (date := datetime.fromisoformat(text)).tzinfo else date
    return None


def comparable(key: str, column: Series, bound: Bound) -> tuple[Values, Values]:
    """Return a column's values, float64 or datetime64 (N,), and the bound as one of them, ().

    A missing value is NaN or NaT.

    Raises
    ------
    UserError
        When a value cannot be compared with the bound; it names the key.
    """
    values = _dates(key, column) if isinstance(bound, datetime) else _numbers(key, column)
    return values, np.asarray(bound, values.dtype)


def _numbers(key: str, column: Series) -> NDArray[np.float64]:
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce") if column.dtype.kind not in "biuf" else column
    found: NDArray[np.float64] = numbers.to_numpy(np.float64)
    _check(key, column, np.isnan(found) | (column.dtype.kind == "M"), "numbers, as the value is")
    return found


def _dates(key: str, column: Series) -> NDArray[np.datetime64]:
    import pandas as pd

    numbers = column.dtype.kind in "biufc"
    read = column.astype(str).where(column.notna()) if not numbers and column.dtype.kind != "M" else column
    dates = pd.to_datetime(read, format="ISO8601", errors="coerce", utc=True)
    _check(key, column, dates.isna().to_numpy() | numbers, "dates such as 2024-01-31, as the value is")
    found: NDArray[np.datetime64] = dates.dt.tz_localize(None).to_numpy("datetime64[us]")
    return found


def _check(key: str, column: Series, unread: NDArray[np.bool_], expected: str) -> None:
    odd = unread & column.notna().to_numpy()
    if odd.any():
        found = f"{column.name!r} holds {str(column[odd].iloc[0])!r}"
        raise UserError(f"{key}: {found} ({number_of(int(odd.sum()), 'row')}); expected {expected}")

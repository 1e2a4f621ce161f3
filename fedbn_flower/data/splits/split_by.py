"""Divide the rows of a table by a column: those below a number or a date are trained on."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
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
    wanted = "dates such as 2024-01-31, as the value is (date-format reads others, such as %d.%m.%Y)"
    _check(key, column, dates.isna().to_numpy() | numbers, wanted)
    found: NDArray[np.datetime64] = dates.dt.tz_localize(None).to_numpy("datetime64[us]")
    return found


def _check(key: str, column: Series, unread: NDArray[np.bool_], expected: str) -> None:
    odd = unread & column.notna().to_numpy()
    if odd.any():
        found = f"{column.name!r} holds {str(column[odd].iloc[0])!r}"
        raise UserError(f"{key}: {found} ({number_of(int(odd.sum()), 'row')}); expected {expected}")


if TYPE_CHECKING:
    from pandas import Series

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class SplitBy:
    """A parsed ``--split-by``.

    Parameters
    ----------
    text : str
        The key's value.
    column : str
        The column whose values are compared.
    bound : Bound
        Rows below it are trained on.
    """

    text: str
    column: str
    bound: Bound

    @classmethod
    def parse(cls, text: str) -> SplitBy:
        """Parse ``COLUMN<VALUE``.

        Raises
        ------
        ValueError
            When the text has another form.
        """
        column, _, value = (part.strip() for part in text.rpartition("<"))
        if not column or (bound := bound_of(value)) is None:
            raise ValueError(text)
        return cls(text, column, bound)

    def divide(self, column: Series) -> tuple[Rows, Rows]:
        """Return the rows to train on, and those to test on, both in order.

        Raises
        ------
        UserError
            When a value is missing or cannot be compared, or a side is empty.
        """
        if missing := int(column.isna().sum()):
            found = f"{self.column!r} is missing in {number_of(missing, 'row')}"
            raise UserError(f"split-by: {found}; expected a value in each")
        values, bound = comparable("split-by", column, self.bound)
        below = np.asarray(values < bound)
        if below.all() or not below.any():
            side, span = (
                "test" if below.all() else "train",
                f"{_shown(values.min())} to {_shown(values.max())}",
            )
            raise not_allowed("split-by", self.text, f"a value that leaves rows to {side} on: it is {span}")
        return np.flatnonzero(below), np.flatnonzero(~below)


def _shown(value: np.float64 | np.datetime64) -> str:
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[s]")).removesuffix("T00:00:00")
    return f"{value:.7g}"

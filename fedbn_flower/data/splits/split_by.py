"""Divide the rows of a table by a column: those below a number or a date are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import isnan
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
from ...core.listing import number_of
from ...core.syntax import SPLIT_BY

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
    bound : float or datetime
        Rows below it are trained on; a date without a time zone is compared with dates as they are written.
    """

    text: str
    column: str
    bound: float | datetime

    @classmethod
    def parse(cls, text: str) -> SplitBy:
        """Parse ``COLUMN<VALUE``.

        Raises
        ------
        UserError
            When the text has another form.
        """
        column, _, value = (part.strip() for part in text.rpartition("<"))
        if not column or not value:
            raise not_allowed("split-by", text, SPLIT_BY)
        try:
            bound: float | datetime = float(value)
        except ValueError:
            try:
                bound = datetime.fromisoformat(value)
            except ValueError:
                raise not_allowed("split-by", text, SPLIT_BY) from None
        if bound.tzinfo if isinstance(bound, datetime) else isnan(bound):
            raise not_allowed("split-by", text, SPLIT_BY)
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
        values = self._dates(column) if isinstance(self.bound, datetime) else self._numbers(column)
        below = np.asarray(values < np.asarray(self.bound, values.dtype))
        if below.all() or not below.any():
            side, span = (
                "test" if below.all() else "train",
                f"{_shown(values.min())} to {_shown(values.max())}",
            )
            raise not_allowed("split-by", self.text, f"a value that leaves rows to {side} on: it is {span}")
        return np.flatnonzero(below), np.flatnonzero(~below)

    def _numbers(self, column: Series) -> NDArray[np.float64]:
        import pandas as pd

        numbers = pd.to_numeric(column, errors="coerce") if column.dtype.kind not in "biuf" else column
        found: NDArray[np.float64] = numbers.to_numpy(np.float64)
        self._check(column, np.isnan(found), "numbers, as the value is")
        return found

    def _dates(self, column: Series) -> NDArray[np.datetime64]:
        import pandas as pd

        numbers = column.dtype.kind in "biufc"
        read = column.astype(str) if not numbers and column.dtype.kind != "M" else column
        dates = pd.to_datetime(read, format="ISO8601", errors="coerce", utc=True)
        self._check(column, dates.isna().to_numpy() | numbers, "dates such as 2024-01-31, as the value is")
        found: NDArray[np.datetime64] = dates.dt.tz_localize(None).to_numpy("datetime64[us]")
        return found

    def _check(self, column: Series, odd: NDArray[np.bool_], expected: str) -> None:
        if odd.any():
            found = f"{self.column!r} holds {str(column[odd].iloc[0])!r}"
            raise UserError(f"split-by: {found} ({number_of(int(odd.sum()), 'row')}); expected {expected}")


def _shown(value: np.float64 | np.datetime64) -> str:
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[s]")).removesuffix("T00:00:00")
    return f"{value:.7g}"

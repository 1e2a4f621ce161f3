"""Divide the rows of a table by a column: those below a number or a date are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
from ...core.syntax import SPLIT_BY
from ...core.text import number_of
from .comparison import Bound, bound_of, comparable

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
        UserError
            When the text has another form.
        """
        column, _, value = (part.strip() for part in text.rpartition("<"))
        if not column or not value:
            raise not_allowed("split-by", text, SPLIT_BY)
        bound = bound_of(value)
        if bound is None:
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

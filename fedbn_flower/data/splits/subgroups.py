"""Subgroups of cases, such as those of a sex, by whose metrics a model is judged: ``--subgroups``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
from ...core.text import SUBGROUPS, quoted
from .split_by import Bound, bound_of, comparable

if TYPE_CHECKING:
    from pandas import Series

KEY = "subgroups"
MOST = 20
"""How many subgroups a column may have."""
NONE = ""
"""Stands for the subgroup of a row whose value is missing."""
SHOWN = 3
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!="}
COMPARED = re.compile(r"(.+)(<=|>=|==|<|>)([^<>=]+)", re.DOTALL)
HOLDS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
}
Words = NDArray[np.str_]
BySplit = Mapping[str, tuple[Words, Words]]
"""The subgroup of each training row and of each test row, by attribute."""


@dataclass(frozen=True)
class Attribute:
    """What divides cases into subgroups: a column by its values, or a comparison that holds or does not.

    Parameters
    ----------
    column : str
        The column.
    sign, value : str
        The comparison; empty without one.
    """

    column: str
    sign: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.column}{self.sign}{self.value}"

    @property
    def bound(self) -> Bound | None:
        """The number or the date of the comparison; None of a word."""
        return bound_of(self.value)

    def of(self, column: Series, words: Words) -> Words:
        """Return the subgroup of each row, (N,): its value, or whether the comparison holds.

        Parameters
        ----------
        column : Series
            The column of the table.
        words : NDArray
            The same as text.

        Raises
        ------
        UserError
            When there are more than `MOST` values, or one cannot be compared.
        """
        known = column.notna().to_numpy()
        if not self.sign:
            return _few(self.column, np.where(known, words, NONE).astype(np.str_))
        if (bound := self.bound) is None:
            holds = words == self.value
        else:
            holds = HOLDS[self.sign](*comparable(KEY, column, bound))
        return np.where(known, np.where(holds, str(self), self.otherwise), NONE).astype(np.str_)

    @property
    def otherwise(self) -> str:
        """The subgroup for which the comparison does not hold."""
        return f"{self.column}{OPPOSITE[self.sign]}{self.value}"


def _few(name: str, subgroups: Words) -> Words:
    found = np.unique(subgroups[subgroups != NONE])
    if len(found) > MOST:
        some = quoted(found.tolist(), SHOWN)
        wanted = f"at most {MOST}, or a comparison such as {name}>={found[len(found) // 2]}"
        raise UserError(f"{KEY}: {name!r} has {len(found)} values ({some}); expected {wanted}")
    return subgroups


def attributes_of(text: str) -> list[Attribute]:
    """Return what a value of the key names.

    Raises
    ------
    UserError
        When a part has another form, or is given twice.
    """
    found: list[Attribute] = []
    for part in text.split(",") if text else ():
        compared = COMPARED.fullmatch(part.strip())
        one = (
            Attribute(*(word.strip() for word in compared.groups())) if compared else Attribute(part.strip())
        )
        of_words = bool(one.sign) and one.bound is None and one.sign != "=="
        if not one.column or of_words or (not compared and re.search("[<>]|==", part)):
            raise not_allowed(KEY, text, SUBGROUPS)
        if one in found:
            raise not_allowed(KEY, text, f"each once, not {str(one)!r} twice")
        found.append(one)
    return found


def given_subgroups(given: Mapping[str, object], sizes: Sequence[int]) -> BySplit:
    """Return the subgroups that a caller gives with arrays: for each attribute a pair of arrays.

    Raises
    ------
    UserError
        When they have another form or other sizes, or an attribute has more than `MOST` values.
    """
    form = "a pair of arrays of words, whole numbers or truth values, for x and for x_test"
    found: dict[str, tuple[Words, Words]] = {}
    for name, pair in given.items():
        if (
            not isinstance(name, str)
            or [str(one) for one in attributes_of(name)] != [name]
            or COMPARED.match(name)
        ):
            raise not_allowed(KEY, name, "names without commas and comparisons")
        if not isinstance(pair, tuple | list) or len(pair) != len(sizes):
            raise UserError(f"{KEY}: {name!r} has {type(pair).__name__}; expected {form}")
        arrays = [np.asarray(one) for one in pair]
        for array, size in zip(arrays, sizes, strict=True):
            if array.shape != (size,) or array.dtype.kind not in "biuUO":
                odd = f"of {name!r} they are {array.dtype} {array.shape}"
                raise UserError(f"{KEY}: {odd}; expected {size} words, whole numbers or truth values")
        both = _few(name, np.concatenate([_words(array) for array in arrays]))
        found[name] = both[: sizes[0]], both[sizes[0] :]
    return found


def _words(array: NDArray) -> Words:
    import pandas as pd

    return np.where(pd.isna(array), NONE, array.astype(np.str_)).astype(np.str_)

"""The columns that a model sees: the words of ``--columns``, and the numbers they become."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....core.errors import UserError, not_allowed, unknown_name
from ...numeric import as_float32

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MOST_VALUES = 100  # of a category that is not named


@dataclass(frozen=True)
class Feature:
    """A column by name: a number, or a category of these ``values``, in order."""

    name: str
    values: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many numbers a value becomes."""
        return len(self.values) or 1

    @classmethod
    def parse(cls, word: str, names: Sequence[str], key: str) -> "Feature":
        """``NAME`` or ``NAME=VALUE|VALUE``; a name that is there may have a ``=``.

        Raises
        ------
        UserError
            When there is no such column, or a value is given twice.
        """
        name, equals, text = (word, "", "") if word in names else word.partition("=")
        if name not in names:
            raise unknown_name(key, name, names)
        values = tuple(text.split("|")) if equals else ()
        if len(set(values)) < len(values) or "" in values:
            raise not_allowed(key, word, "different values, as in sex=f|m")
        return cls(name, values)

    def __str__(self) -> str:
        return f"{self.name}={'|'.join(self.values)}" if self.values else self.name


def features_of(columns: str, table: "DataFrame", left_out: Sequence[str], of_site: bool) -> list[Feature]:
    """What the key says, with what it leaves to the table: all columns but those ``left_out``, in order; the
    values of a category, sorted.

    Nothing is left to the table of a site: the others' are not seen, and all are to encode alike.

    Raises
    ------
    UserError
        When the text does not fit the table, or a column is neither of numbers nor of categories.
    """
    names = list(table.columns)
    if columns == "auto":
        words = [name for name in names if name not in left_out]
        if of_site:
            form = [f"{word}=VALUE|VALUE" if _is_category(table[word]) else word for word in words]
            raise not_allowed("columns", columns, f"the same for all sites, such as {_line(form)!r}")
        found = [Feature(word) for word in words]
    else:
        found = [Feature.parse(word, names, "columns") for word in next(csv.reader([columns]))]
    if not found:
        raise UserError(f"columns: nothing is left beside {', '.join(left_out)}")
    for i, feature in enumerate(found):
        if feature.name in (f.name for f in found[:i]):
            raise not_allowed("columns", columns, f"each column once; {feature.name!r} is there twice")
        if feature.name == left_out[0]:
            raise not_allowed("columns", columns, f"others than {feature.name!r}, the label-column")
        if not feature.values and _is_category(table[feature.name]):
            if of_site:
                raise not_allowed("columns", feature.name, f"its values too: {feature.name}=VALUE|VALUE")
            found[i] = Feature(feature.name, _values(table[feature.name], columns == "auto"))
    return found


def text_of_columns(features: Sequence[Feature]) -> str:
    """The words that `features_of` takes."""
    return _line([str(feature) for feature in features])


def encoded(features: Sequence[Feature], table: "DataFrame") -> NDArray[np.float32]:
    """The rows as float32 (N, widths together): NaN for a number that is missing, zeros for a category.

    Raises
    ------
    UserError
        For a value that a category does not have, and for infinite numbers.
    """
    x = np.zeros((len(table), sum(feature.width for feature in features)), np.float32)
    start = 0
    for feature in features:
        column, stop = table[feature.name], start + feature.width
        if feature.values:
            x[:, start:stop] = np.eye(feature.width + 1, feature.width)[numbered(column, feature, "columns")]
        else:
            x[:, start] = as_float32(column.to_numpy(np.float64, na_value=np.nan))
            if np.isinf(x[:, start]).any():
                raise UserError(f"columns: {feature.name!r} holds numbers that float32 does not have")
        start = stop
    return x


def numbered(column: "Series", feature: Feature, key: str) -> NDArray[np.int64]:
    """The place of each value in ``feature.values``; how many these are, where it is missing.

    Raises
    ------
    UserError
        For a value that is none of them.
    """
    import pandas as pd

    words = as_text(column)
    places = pd.Index(feature.values).get_indexer(words)
    there = column.notna().to_numpy()
    if (unknown := there & (places < 0)).any():
        told = f"{feature.name!r} holds {words[unknown.argmax()]!r}"
        raise UserError(f"{key}: {told}, which is none of {'|'.join(feature.values)}")
    return np.where(there, places, len(feature.values)).astype(np.int64)


def as_text(column: "Series") -> NDArray[np.object_]:
    """Values as words: whole numbers without a point, also where others are missing; ``False``, ``True``."""
    import pandas as pd

    if is_number(column):
        column = column.map(lambda v: int(v) if pd.notna(v) and float(v).is_integer() else v)
    return np.array([str(value) for value in column.astype(object)], object)


def is_number(column: "Series") -> bool:
    """Whether it is of numbers; of truth values it is not."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype)


def _is_category(column: "Series") -> bool:
    """Whether it is of words or truth values.

    Raises
    ------
    UserError
        When it is neither that nor of numbers.
    """
    from pandas.api.types import infer_dtype

    if is_number(column):
        return False
    if infer_dtype(column, skipna=True) not in ("string", "boolean", "categorical", "empty"):
        raise UserError(f"columns: {column.name!r} holds {column.dtype}, neither numbers nor words")
    return True


def _values(column: "Series", guessed: bool) -> tuple[str, ...]:
    """All values of a category, sorted."""
    words = sorted(set(as_text(column[column.notna()])))
    if guessed:
        check_words(column, words, "columns")
    if guessed and len(words) > MOST_VALUES:
        told = f"{column.name!r} holds {len(words)} different words"
        raise UserError(f"columns: {told}; name the columns to use, or this one with its values")
    return tuple(words)


def check_words(column: "Series", words: Sequence[str], key: str) -> None:
    """Refuse words most of which are numbers.

    Raises
    ------
    UserError
        With what is to be done about it.
    """
    import pandas as pd

    as_numbers = pd.Series(words).str.replace(",", ".", regex=False)
    other = [
        word
        for word, odd in zip(words, pd.to_numeric(as_numbers, errors="coerce").isna(), strict=True)
        if odd
    ]
    if len(other) < len(words) / 2:
        comma = next((word for word in words if "," in word), "")
        told = f"numbers and {other[0]!r}" if other else f"numbers as words, such as {(comma or words[0])!r}"
        hint = "write decimals with a point" if comma else "leave a field empty where nothing is known"
        raise UserError(f"{key}: {column.name!r} holds {told}; {hint}")


def _line(words: Sequence[str]) -> str:
    """Words with commas between, quoted where they have some."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(words)
    return line.getvalue()

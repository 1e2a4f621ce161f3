"""Parse ``--columns``, the columns that a model sees, and encode them as numbers."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....core.errors import UserError, not_allowed, unknown_name
from ...rounding import as_float32

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MAX_CATEGORIES = 100  # of a column that ``--columns`` does not name


@dataclass(frozen=True)
class Feature:
    """A column by name: numeric, or categorical with these ``values``, in order."""

    name: str
    values: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """The number of encoded columns."""
        return len(self.values) or 1

    @classmethod
    def parse(cls, word: str, names: Sequence[str], key: str) -> "Feature":
        """Parse ``NAME`` or ``NAME=VALUE|VALUE``; the name of an existing column may contain ``=``.

        Raises
        ------
        UserError
            When there is no such column, or a value is empty or given twice.
        """
        name, equals, text = (word, "", "") if word in names else word.partition("=")
        if name not in names:
            raise unknown_name(key, name, names)
        values = tuple(text.split("|")) if equals else ()
        if len(set(values)) < len(values) or "" in values:
            raise not_allowed(key, word, "distinct values, as in sex=f|m")
        return cls(name, values)

    def __str__(self) -> str:
        return f"{self.name}={'|'.join(self.values)}" if self.values else self.name


def parse_columns(
    columns: str, table: "DataFrame", labels: Sequence[str], group: str, of_site: bool
) -> list[Feature]:
    """Parse ``--columns``, and infer from the table what it leaves open.

    Inferred are the columns (for ``auto``: all but the ``labels`` and the ``group``, in order) and the values
    of a category (sorted). Nothing is inferred for a site: the other sites' tables are not visible, and all
    must be encoded alike.

    Raises
    ------
    UserError
        When the text does not fit the table, or a column holds neither numbers nor categories.
    """
    names, excluded = list(table.columns), [*labels, *filter(None, [group])]
    if columns == "auto":
        words = [name for name in names if name not in excluded]
        if of_site:
            form = [f"{word}=VALUE|VALUE" if _is_category(table[word]) else word for word in words]
            raise not_allowed("columns", columns, f"the same for all sites, such as {_csv_line(form)!r}")
        found = [Feature(word) for word in words]
    else:
        found = [Feature.parse(word, names, "columns") for word in next(csv.reader([columns]))]
    if not found:
        raise UserError(f"columns: no columns remain besides {', '.join(excluded)}")
    for i, feature in enumerate(found):
        if feature.name in (f.name for f in found[:i]):
            raise not_allowed("columns", columns, f"each column once; {feature.name!r} is given twice")
        if feature.name in labels:
            raise not_allowed("columns", columns, f"columns other than {feature.name!r}, the label-column")
        if not feature.values and _is_category(table[feature.name]):
            if of_site:
                raise not_allowed(
                    "columns", feature.name, f"the column with its values: {feature.name}=VALUE|VALUE"
                )
            found[i] = Feature(feature.name, _values(table[feature.name], columns == "auto"))
    return found


def format_columns(features: Sequence[Feature]) -> str:
    """Return the text that `parse_columns` reads."""
    return _csv_line([str(feature) for feature in features])


def encode(features: Sequence[Feature], table: "DataFrame") -> NDArray[np.float32]:
    """Encode rows as float32 (N, sum of widths); missing numbers are NaN, missing categories zeros.

    Raises
    ------
    UserError
        For a value that is not in its category, and for infinite or too large numbers.
    """
    x = np.zeros((len(table), sum(feature.width for feature in features)), np.float32)
    start = 0
    for feature in features:
        column, stop = table[feature.name], start + feature.width
        if feature.values:
            x[:, start:stop] = np.eye(feature.width + 1, feature.width)[
                category_numbers(column, feature, "columns")
            ]
        else:
            x[:, start] = as_float32(column.to_numpy(np.float64, na_value=np.nan))
            if np.isinf(x[:, start]).any():
                raise UserError(
                    f"columns: {feature.name!r} holds numbers that are infinite or too large for float32"
                )
        start = stop
    return x


def category_numbers(column: "Series", feature: Feature, key: str) -> NDArray[np.int64]:
    """Return the index of each value in ``feature.values``, int64 (N,); ``len(values)`` if it is missing.

    Raises
    ------
    UserError
        For a value that is not one of them.
    """
    import pandas as pd

    words = as_text(column)
    indices = pd.Index(feature.values).get_indexer(words)
    present = column.notna().to_numpy()
    if (unknown := present & (indices < 0)).any():
        found = f"{feature.name!r} holds {words[unknown.argmax()]!r}"
        raise UserError(f"{key}: {found}; expected one of {'|'.join(feature.values)}")
    return np.where(present, indices, len(feature.values)).astype(np.int64)


def as_text(column: "Series") -> NDArray[np.object_]:
    """Return values as text: whole numbers without a decimal point, truth values as ``False``, ``True``."""
    import pandas as pd

    if is_number(column):
        column = column.map(lambda v: int(v) if pd.notna(v) and float(v).is_integer() else v)
    return np.array([str(value) for value in column.astype(object)], object)


def is_number(column: "Series") -> bool:
    """Return whether a column is numeric; truth values are not."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype)


def _is_category(column: "Series") -> bool:
    """Return whether a column holds text or truth values.

    Raises
    ------
    UserError
        When it holds neither these nor numbers.
    """
    from pandas.api.types import infer_dtype

    if is_number(column):
        return False
    if infer_dtype(column, skipna=True) not in ("string", "boolean", "categorical", "empty"):
        raise UserError(f"columns: {column.name!r} holds {column.dtype}; expected numbers or text")
    return True


def _values(column: "Series", inferred: bool) -> tuple[str, ...]:
    """Return all values of a category, sorted."""
    words = sorted(set(as_text(column[column.notna()])))
    if inferred:
        check_categories(column, words, "columns")
    if inferred and len(words) > MAX_CATEGORIES:
        found = f"{column.name!r} holds {len(words)} distinct values"
        raise UserError(f"columns: {found}; name the columns to use, or this one with its values")
    return tuple(words)


def check_categories(column: "Series", words: Sequence[str], key: str) -> None:
    """Refuse text values most of which are numbers.

    Raises
    ------
    UserError
        Says how to write the file.
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
        found = f"numbers and {other[0]!r}" if other else f"numbers as text, such as {(comma or words[0])!r}"
        hint = "write decimals with a point" if comma else "leave missing values empty"
        raise UserError(f"{key}: {column.name!r} holds {found}; {hint}")


def _csv_line(words: Sequence[str]) -> str:
    """Join words with commas; quote those that contain one."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(words)
    return line.getvalue()

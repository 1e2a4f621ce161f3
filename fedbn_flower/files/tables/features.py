"""Find the columns that a model sees, and encode them as numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...core.errors import UserError, not_allowed
from ...data.column_text import Feature, joined, split_words
from ...data.dataset import Request
from ...data.float32 import as_float32
from .header import is_unnamed
from .words import (
    TIMES,
    as_text,
    category_numbers,
    check_categories,
    first_alone,
    is_number_type,
    refuse_nested,
    says_whose,
)

if TYPE_CHECKING:
    from pandas import DataFrame, Series

OBJECTS = {"integer": "integers of more than 64 bits"}
HINTS = {
    **dict.fromkeys(("datetime64", "datetime", "date"), "write days or years since a date that matters"),
    **dict.fromkeys(("timedelta64", "timedelta", "time"), TIMES),
}
"""What to do with values of a type that is neither numbers nor text, as pandas calls it."""
MAX_CATEGORIES = 100  # of a column that ``--columns`` does not name


def parse_columns(request: Request, table: "DataFrame", labels: Sequence[str]) -> list[Feature]:
    """Parse ``--columns``, and infer from the table what it leaves open.

    Inferred are the columns (for ``auto``: all but the ``labels``, the natural clients' and the units', and
    those without a name or without values, in order) and the values of a category (sorted). Nothing is
    inferred for a site: the other sites' tables are not visible, and all must be encoded alike. Nor is it of
    private rows.

    Raises
    ------
    UserError
        When the text does not fit the table, or a column holds neither numbers nor categories.
    """
    columns, inferred = request.columns, not (request.of_site or request.private)
    excluded = dict.fromkeys([*labels, *request.columns_of_rows])
    names = dict(zip(table.columns, table.dtypes, strict=True))
    numbers = {name for name, dtype in names.items() if is_number_type(dtype)}
    if columns == "auto":
        words = [name for name in names if name not in excluded and not is_unnamed(name)]
        if not inferred:
            categories = {word for word in words if word not in numbers and _holds_text(table[word], True)}
            forms = [f"{Feature(word)}{'=VALUE|VALUE' * (word in categories)}" for word in words]
            why = "the same for all sites" if request.of_site else "names beforehand, since rows are private"
            raise not_allowed("columns", columns, f"{why}, such as {joined(forms)!r}")
        filled = table.notna().any()
        words = [word for word in words if table.empty or filled[word]]
        found = [Feature(word) for word in words]
    else:
        found = [Feature.parse(word, names, "columns") for word in split_words(columns)]
    if not found:
        raise UserError(f"columns: no columns remain besides {', '.join(excluded)}")
    given: set[str] = set()
    for i, feature in enumerate(found):
        if feature.name in given:
            raise not_allowed("columns", columns, f"each column once; {feature.name!r} is given twice")
        given.add(feature.name)
        if feature.name in labels:
            raise not_allowed("columns", columns, f"columns other than {feature.name!r}, the label-column")
        for name, key in request.no_inputs.items():
            if feature.name == name:
                raise not_allowed("columns", columns, f"columns other than {name!r}, the {key}")
        if feature.values or feature.name in numbers:
            continue
        if _holds_text(table[feature.name], columns == "auto"):
            if not inferred:
                form = f"{Feature(feature.name)}=VALUE|VALUE"
                raise not_allowed("columns", feature.name, f"the column with its values: {form}")
            found[i] = Feature(feature.name, _values(table[feature.name], columns == "auto"))
    return found


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


def _holds_text(column: "Series", inferred: bool) -> bool:
    """Return True for a column of texts or truth values; ``inferred`` says that no key names it.

    Raises
    ------
    UserError
        When it holds anything else.
    """
    from pandas.api.types import infer_dtype

    refuse_nested(column, "columns")
    found = infer_dtype(column, skipna=True)
    if found in ("mixed", "mixed-integer"):  # of a workbook
        words = sorted(set(as_text(column.dropna())))
        check_categories(str(column.name), words, "columns", first=first_alone(column))
    if found not in ("string", "boolean", "categorical", "empty"):
        kind = column.dtype if column.dtype != object else OBJECTS.get(found, found)
        hint = HINTS.get(found, "")
        other_way = f"{', or' if hint else ':'} name the columns to use" if inferred else ""
        raise UserError(
            f"columns: {column.name!r} holds {kind}; {hint or 'expected numbers or text'}{other_way}"
        )
    return True


def _values(column: "Series", inferred: bool) -> tuple[str, ...]:
    """Return all values of a category, sorted."""
    words = sorted(set(as_text(column[column.notna()])))
    name = str(column.name)
    other_way = "name the columns to use" if inferred else f"name its values: {Feature(name)}=VALUE|VALUE"
    check_categories(name, words, "columns", other_way, first_alone(column))
    if inferred and len(words) > MAX_CATEGORIES:
        found = f"{column.name!r} holds {len(words)} distinct values"
        whose = f"group-column {column.name!r} keeps rows of one together; or " if says_whose(column) else ""
        raise UserError(f"columns: {found}; {whose}name the columns to use, or this one with its values")
    return tuple(words)

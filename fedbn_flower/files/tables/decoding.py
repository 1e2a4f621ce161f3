"""Decode table files to columns."""

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import UserError, not_allowed
from ...core.notes import Note
from ...core.text import listed as first_of
from ...data.column_text import Feature, format_columns, numeric
from ...data.dataset import Decoded, Request
from .doubts import merged, repeated, rounded_off
from .features import encode, parse_columns
from .files import Files, joined_tables
from .header import is_unnamed
from .labelled import counted, labelled_rows
from .table_file import ReadTable, words_taken
from .words import alike, as_text, is_number_type, listed, read_as, says_whose
from .written import as_days

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_SHOWN = 20  # columns in a note
FEW_SHOWN = 5  # of columns that are hardly of use
MAX_TEXT = 2000  # signs of an encoding in a note


def decode_tables(request: Request, files: Files) -> Decoded:
    """Decode the tables ``train`` and ``test``; without ``test`` a fifth of the rows is held out.

    Raises
    ------
    UserError
        When a table cannot be read, or lacks a requested column.
    """
    if request.unit_pattern:
        raise not_allowed(
            request.unit_key, request.unit_pattern, "the name of a column: the data are a table"
        )
    read = joined_tables(request, files)
    found = labelled_rows(request, read.table, read.parts)
    table, targets, labelled = found.table, found.targets, found.table.index
    is_test = read.is_test[labelled]
    if len(table) < len(read.table):
        are_texts = all(part.layout for part in read.parts)
        table = _numbers_again(table) if are_texts else table.infer_objects()
    used = [*found.label_names, *request.columns_of_rows]
    table, dates = as_days(table, used)
    features = parse_columns(request, table, found.label_names)
    x = encode(features, table)
    numbers = found.label_names if targets.predicts == "numbers" else []
    rest, of_rounding, lost = rounded_off(features, table, numbers)
    train_rows, test_rows, of_split = found.divided(request, is_test if "test" in files else None)
    notes = [*read.notes, *found.notes, *of_split]
    for split, rows in (("train", train_rows), ("test", test_rows)):
        if not len(rows):
            raise UserError(f"dataset: {request.name!r} has too few rows with a label for a {split} set")
    classes = found.label_names if targets.predicts == "classes" else []
    owners, units_of = [request.group_column], [request.unit_column]
    notes += merged(read.parts, {"target": classes, "clients": owners, "examples": units_of})
    notes += repeated(read.parts, [*dict.fromkeys([*used, *(one.name for one in features)])])
    if days := [feature.name for feature in features if feature.name in dates]:
        notes.append(Note("inputs", f"dates are days since 1970-01-01: {listed(days)}"))
    notes += _left_out(table, is_test, {*used, *(one.name for one in features)}, request.columns == "auto")
    whole = found.with_columns({"x": x, **rest}, read.origins(request)[labelled])
    train = whole.at(train_rows)
    return Decoded(
        "table",
        train,
        whole.at(test_rows),
        {
            **of_rounding,
            "predicts": targets.predicts,
            "outputs": targets.outputs,
            "numbers": [place for place, _ in numeric(features)],
            "targets": found.label_names,
            "columns": [{"name": feature.name, "values": list(feature.values)} for feature in features],
        },
        targets.class_names,
        (
            *notes,
            *targets.notes,
            *_notes_on_columns(features, table, read.parts),
            *_constant(features, train.columns["x"]),
            *lost,
        ),
    )


def _numbers_again(table: "DataFrame") -> "DataFrame":
    """Return a text file's rows with numbers that were text beside what was left out, such as totals."""
    import pandas as pd

    found = {}
    for name, dtype in zip(table.columns, table.dtypes, strict=True):
        if not is_number_type(dtype):
            with suppress(ValueError, TypeError):
                found[name] = pd.to_numeric(table[name])
    return table.assign(**found)


def _left_out(table: "DataFrame", is_test: np.ndarray, used: Container[str], guessed: bool) -> list[Note]:
    """Return notes on the columns that are no inputs: those without name or values, unless they are named."""
    others = [name for name in table.columns if name not in used]
    if not guessed:
        if not others:
            return []
        count = f"{len(others)} column{'s' * (len(others) > 1)}"
        found = f"{count} that 'columns' does not name: {listed(others)}"
        return [Note("left out", found), *_of_people(table[others])]
    notes = []
    for name in others:
        column = table[name]
        if not column.notna().any():
            without = "name and values" if is_unnamed(name) else "values"
            notes.append(Note("left out", f"{name!r}, a column without {without}"))
            continue
        splits = column[is_test], column[~is_test]
        numbered = column.dtype.kind in "iu" and not any(split.duplicated().any() for split in splits)
        what = "a row index: distinct whole numbers without a name" if numbered else "a column without a name"
        notes.append(Note("left out", f"{name!r}, {what}", "columns"))
    return notes


def _of_people(left_out: "DataFrame") -> list[Note]:
    """Return a note on columns whose values say that rows belong together."""
    names = [name for name in left_out if says_whose(left_out[name])]
    if not names:
        return []
    has = "has" if len(names) == 1 else "have"
    found = f"groups? {listed(names)} {has} values that several rows share, as those of a patient do: some"
    return [Note("left out", f"{found} may be trained on and others tested on", "group-column")]


def _constant(features: list[Feature], x: np.ndarray) -> list[Note]:
    """Return a note on the inputs that have at most one value in the training rows."""
    low, high = np.fmin.reduce(x), np.fmax.reduce(x)  # NaN where there is no value
    stop, found = 0, []
    for feature in features:
        start, stop = stop, stop + feature.width
        if feature.values:
            there = np.flatnonzero(high[start:stop])
            value = feature.values[there[0]] if len(there) else "none"
            is_constant = len(there) < 2
        else:
            value = "none" if np.isnan(low[start]) else f"{low[start]:.7g}"
            is_constant = not low[start] < high[start]
        if is_constant:
            found.append(f"{feature.name!r} ({value})")
    if not found:
        return []
    shown = first_of(found, FEW_SHOWN)
    return [Note("inputs", f"with one value in all training rows, which teaches nothing: {shown}")]


def _notes_on_columns(features: list[Feature], table: "DataFrame", parts: Sequence[ReadTable]) -> list[Note]:
    """Return notes on categories and missing values, if there are any."""
    notes = []
    categories = [feature for feature in features if feature.values]
    if categories:
        text = format_columns(features)
        text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
        notes.append(Note("inputs", f"categories are one-hot encoded in the order of {text!r}"))
    for feature in categories:
        if same := alike(feature.values):
            found = f"{feature.name!r} has values that differ only in case or blanks: {listed(same)}"
            notes.append(Note("inputs", found, "columns"))
        if read := read_as(as_text(table[feature.name].dropna()), feature.values):
            notes.append(
                Note("inputs", f"{feature.name!r} is read without regard to case and blanks: {read}")
            )
    counts = table[[feature.name for feature in features]].isna().sum()
    if len(counts := counts[counts > 0]):
        words = words_taken(parts, list(counts.index))
        where = _some({name: str(count) for name, count in counts.items()})
        filled = "numbers are filled with their mean, categories are encoded as zeros"
        notes.append(Note("inputs", f"missing values ({where}): {filled}"))
        if words:
            where = _some({f"in {name!r}": counted(found) for name, found in words.items()})
            notes.append(Note("inputs", f"words taken for missing values: {where}", "missing-values"))
    return notes


def _some(found: Mapping[str, str]) -> str:
    """Return what is said of each column, of the first ones if there are many."""
    return first_of([f"{name} {text}" for name, text in found.items()], MAX_SHOWN)

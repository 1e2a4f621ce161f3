"""Decode table files to columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ....core.errors import UserError
from ...dataset import Decoded, Request
from ...notes import Note
from .features import Feature, encode, format_columns, parse_columns
from .labelled import labelled_rows
from .rounded_off import rounded_off
from .table_file import read_table

if TYPE_CHECKING:
    from pandas import DataFrame


def decode_tables(request: Request, files: Mapping[str, Path]) -> Decoded:
    """Decode the tables ``train`` and ``test``; without ``test`` a fifth of the rows is held out.

    Raises
    ------
    UserError
        When a table cannot be read, or lacks a requested column.
    """
    import pandas as pd

    tables = {split: read_table(path) for split, path in files.items()}
    train = tables["train"]
    if missing := [name for name in train if name not in tables.get("test", train)]:
        raise UserError(f"dataset: {str(files['test'])!r} has no column {missing[0]!r}")
    is_test = np.repeat([split == "test" for split in tables], [len(t) for t in tables.values()])
    found = labelled_rows(request, pd.concat(list(tables.values()), ignore_index=True)[list(train.columns)])
    table, targets, is_test = found.table, found.targets, is_test[found.rows]
    features = parse_columns(request.columns, table, found.label_names, request.group_column, request.of_site)
    x, y, ids = encode(features, table), targets.y, found.ids
    numbers = found.label_names if targets.predicts == "numbers" else []
    rest, of_rounding, lost = rounded_off(features, table, numbers)
    notes = list(found.notes)
    train_rows, test_rows = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    if "test" not in tables:
        train_rows, test_rows, note = found.held_out_fifth(request)
        notes.append(note)
    for split, rows in (("train", train_rows), ("test", test_rows)):
        if not len(rows):
            raise UserError(f"dataset: {request.name!r} has too few rows with a label for a {split} set")
    return Decoded(
        "table",
        {name: column[train_rows] for name, column in ({"x": x, "y": y} | rest).items()},
        {name: column[test_rows] for name, column in ({"x": x, "y": y} | rest).items()},
        {
            **of_rounding,
            "predicts": targets.predicts,
            "outputs": targets.outputs,
            "numbers": _numeric_columns(features),
            "columns": format_columns(features),
        },
        (ids[train_rows], ids[test_rows]) if ids is not None else None,
        targets.class_names,
        (*notes, *targets.notes, *_notes_on_columns(features, table), *lost),
        tests_by_client=ids is not None and "test" in tables,
    )


def _numeric_columns(features: list[Feature]) -> list[int]:
    """Return the indices of the numeric columns among the encoded ones."""
    starts = np.cumsum([0, *(feature.width for feature in features)]).tolist()
    return [start for start, feature in zip(starts, features, strict=False) if not feature.values]


def _notes_on_columns(features: list[Feature], table: "DataFrame") -> list[Note]:
    """Return notes on categories and missing values, if there are any."""
    notes = []
    if any(feature.values for feature in features):
        notes.append(
            Note("inputs", f"categories are one-hot encoded in the order of {format_columns(features)!r}")
        )
    missing = {f.name: int(count) for f in features if (count := table[f.name].isna().sum())}
    if missing:
        where = ", ".join(f"{name} {count}" for name, count in missing.items())
        filled = "numbers are filled with their mean, categories are encoded as zeros"
        notes.append(Note("inputs", f"missing values ({where}): {filled}"))
    return notes

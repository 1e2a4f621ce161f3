"""Decode table files to columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....core.errors import UserError, not_allowed, unknown_name
from ...dataset import Decoded, Request
from ...splits import held_out_fifth
from .features import Feature, as_text, encode, format_columns, parse_columns
from .labels import encode_several, encode_targets, find_labels
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
    labels = find_labels(request.label_column, list(train.columns), request.name)
    label_names = [label.name for label in labels]
    group = request.group_column
    if group and group not in train:
        raise unknown_name("partition", group, train.columns)
    if group in label_names:
        raise not_allowed("partition", f"natural:{group}", "another column: this is the label-column")
    if missing := [name for name in train if name not in tables.get("test", train)]:
        raise UserError(f"dataset: {str(files['test'])!r} has no column {missing[0]!r}")
    notes = []
    is_test = np.repeat([split == "test" for split in tables], [len(t) for t in tables.values()])
    table = pd.concat(list(tables.values()), ignore_index=True)[list(train.columns)]
    labelled = table[label_names].notna().all(axis=1)
    if unlabelled := int((~labelled).sum()):
        where = " or ".join(map(repr, label_names))
        notes.append(f"label-column: {unlabelled} rows without a value in {where} are left out")
        is_test, table = is_test[labelled], table[labelled]
    if len(labels) == 1:
        targets = encode_targets(table[label_names[0]], labels[0], request.predict, request.of_site)
    else:
        targets = encode_several(table[label_names], request.predict)
    features = parse_columns(request.columns, table, label_names, group, request.of_site)
    x, y = encode(features, table), targets.y
    ids = _ids(table, group) if group else None
    train_rows, test_rows = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    if "test" not in tables:
        train_rows, test_rows = held_out_fifth(y, ids)
        rows_of = "the rows" if ids is None else f"the rows of each {group!r}"
        notes.append(f"dataset: {request.name!r} has no test set: a fixed 20 % of {rows_of} is held out")
    for split, rows in (("train", train_rows), ("test", test_rows)):
        if not len(rows):
            raise UserError(f"dataset: {request.name!r} has too few rows with a label for a {split} set")
    return Decoded(
        "table",
        {"x": x[train_rows], "y": y[train_rows]},
        {"x": x[test_rows], "y": y[test_rows]},
        {
            "predicts": targets.predicts,
            "outputs": targets.outputs,
            "numbers": _numeric_columns(features),
            "columns": format_columns(features),
        },
        (ids[train_rows], ids[test_rows]) if ids is not None else None,
        targets.class_names,
        (*notes, *targets.notes, *_notes_on_columns(features, table)),
    )


def _numeric_columns(features: list[Feature]) -> list[int]:
    """Return the indices of the numeric columns among the encoded ones."""
    starts = np.cumsum([0, *(feature.width for feature in features)]).tolist()
    return [start for start, feature in zip(starts, features, strict=False) if not feature.values]


def _notes_on_columns(features: list[Feature], table: "DataFrame") -> list[str]:
    """Return notes on categories and missing values, if there are any."""
    notes = []
    if any(feature.values for feature in features):
        notes.append(f"columns: categories are one-hot encoded in the order of {format_columns(features)!r}")
    missing = {f.name: int(count) for f in features if (count := table[f.name].isna().sum())}
    if missing:
        where = ", ".join(f"{name} {count}" for name, count in missing.items())
        filled = "numbers are filled with the client's mean, categories are encoded as zeros"
        notes.append(f"columns: missing values ({where}): {filled}")
    return notes


def _ids(table: "DataFrame", group: str) -> NDArray[np.str_]:
    """Return the natural clients' ids as text."""
    if count := int(table[group].isna().sum()):
        raise UserError(f"partition: {group!r} is missing in {count} rows")
    return as_text(table[group]).astype(np.str_)

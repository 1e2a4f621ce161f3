"""From files to columns."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....core.errors import UserError, not_allowed, unknown_name
from ...dataset import Decoded, Request
from ...splits import held_out_fifth
from .features import Feature, as_text, encoded, features_of, text_of_columns
from .files import read_table
from .labels import label_feature, targets_of

if TYPE_CHECKING:
    from pandas import DataFrame


def tables_decoded(request: Request, files: Mapping[str, Path]) -> Decoded:
    """The tables ``train`` and ``test``; without the latter a fifth of the rows is held out.

    Raises
    ------
    UserError
        When they cannot be read, or do not have what is asked for.
    """
    import pandas as pd

    tables = {split: read_table(path) for split, path in files.items()}
    train = tables["train"]
    label = label_feature(request.label_column, list(train.columns), request.name)
    group = request.group_column
    if group and group not in train:
        raise unknown_name("partition", group, train.columns)
    if group == label.name:
        raise not_allowed("partition", f"natural:{group}", "another column: this is the label-column")
    if lacking := [name for name in train if name not in tables.get("test", train)]:
        raise UserError(f"dataset: {str(files['test'])!r} has no column {lacking[0]!r}")
    notes = []
    is_test = np.repeat([split == "test" for split in tables], [len(t) for t in tables.values()])
    table = pd.concat(list(tables.values()), ignore_index=True)[list(train.columns)]
    if unlabelled := int(table[label.name].isna().sum()):
        notes.append(f"label-column: {unlabelled} rows without a {label.name!r} are left out")
        is_test, table = is_test[table[label.name].notna()], table[table[label.name].notna()]
    targets = targets_of(table[label.name], label, request.predict, request.of_site)
    features = features_of(request.columns, table, [label.name, *filter(None, [group])], request.of_site)
    x, y = encoded(features, table), targets.y
    ids = _ids(table, group) if group else None
    train_rows, test_rows = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    if "test" not in tables:
        train_rows, test_rows = held_out_fifth(y.reshape(-1), ids)
        fifth = f"a fixed fifth of {'its rows' if ids is None else f'the rows of each {group!r}'} is held out"
        notes.append(f"dataset: {request.name!r} has no test set: {fifth}")
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
            "numbers": _places_of_numbers(features),
            "columns": text_of_columns(features),
        },
        (ids[train_rows], ids[test_rows]) if ids is not None else None,
        targets.class_names,
        (*notes, *targets.notes, *_told_of_columns(features, table)),
    )


def _places_of_numbers(features: list[Feature]) -> list[int]:
    """Which of the encoded columns are numbers."""
    starts = np.cumsum([0, *(feature.width for feature in features)]).tolist()
    return [start for start, feature in zip(starts, features, strict=False) if not feature.values]


def _told_of_columns(features: list[Feature], table: "DataFrame") -> list[str]:
    """Lines on categories and missing values, if there are any."""
    notes = []
    if any(feature.values for feature in features):
        notes.append(f"columns: categories are encoded as in {text_of_columns(features)!r}")
    missing = {f.name: int(count) for f in features if (count := table[f.name].isna().sum())}
    if missing:
        where = ", ".join(f"{name} {count}" for name, count in missing.items())
        means = "a number's is the client's own mean, a category's no value"
        notes.append(f"columns: values are missing ({where}): {means}")
    return notes


def _ids(table: "DataFrame", group: str) -> NDArray[np.str_]:
    """The natural clients' ids."""
    if count := int(table[group].isna().sum()):
        raise UserError(f"partition: {group!r} is missing in {count} rows")
    return as_text(table[group]).astype(np.str_)

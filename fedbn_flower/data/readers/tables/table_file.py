"""Find table files and read them."""

import csv
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.errors import UserError
from ...images.decoding import is_image
from ...walk import walk

if TYPE_CHECKING:
    from pandas import DataFrame

SUFFIXES = (".csv", ".parquet")
SEPARATORS = ",;\t"


def table_files(path: Path) -> dict[str, Path]:
    """Return the table ``train``, and ``test`` if present, of a file or a folder; empty if there is none.

    A folder must contain ``{train,test}.{csv,parquet}`` and no images, neither as files nor in the tables.
    """
    if path.is_file() and path.suffix in SUFFIXES:
        return {"train": path}
    found = {
        split: next((file for suffix in SUFFIXES if (file := path / f"{split}{suffix}").is_file()), None)
        for split in ("train", "test")
    }
    train = found["train"]
    if not train or _has_images(train) or any(map(is_image, walk(path).files)):
        return {}
    return {split: file for split, file in found.items() if file}


def _has_images(path: Path) -> bool:
    """Return whether a column holds bytes or structs, as the hub's image datasets do."""
    if path.suffix != ".parquet":
        return False
    import pyarrow
    from pyarrow import parquet, types

    try:
        fields = parquet.read_schema(path).types
    except (OSError, pyarrow.ArrowException):
        return False  # reported by `read_table`
    return any(types.is_struct(t) or types.is_binary(t) or types.is_large_binary(t) for t in fields)


def read_table(path: Path) -> "DataFrame":
    """Read a CSV or Parquet table; column names become text.

    A CSV file has a header. Its separator is the comma, semicolon or tab, whichever is most frequent in the
    first line outside quotes. Empty fields, ``NA``, ``NaN``, ``null`` and the like are missing values, as in
    pandas. A named index of a Parquet file becomes a column.

    Raises
    ------
    UserError
        When the file cannot be read, or has no rows.
    """
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        else:
            with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
                table = pd.read_csv(path, sep=_separator(path), index_col=False, low_memory=False)
    except pd.errors.ParserWarning as error:
        reason = "rows with more fields than its header has names"
        raise UserError(f"dataset: {str(path)!r} has {reason}") from error
    except Exception as error:  # pandas and pyarrow raise anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"dataset: cannot load {str(path)!r}: {lines[0]}") from error
    if not len(table):
        raise UserError(f"dataset: {str(path)!r} has no rows")
    if any(name is not None for name in table.index.names):
        table = table.reset_index()
    return table.rename(columns=str)


def first_row(path: Path) -> list[str]:
    """Return the fields of the first row of a CSV file below its header; empty if there is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, delimiter=_separator(path))
            next(rows, None)
            return next(rows, [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _separator(path: Path) -> str:
    """Return the separator that is most frequent in the header, outside quotes."""
    with path.open(encoding="utf-8") as file:
        header = re.sub('"[^"]*"', "", file.readline())
    return max(SEPARATORS, key=header.count)

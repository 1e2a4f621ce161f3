"""Which files are tables, and what is in them."""

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ....core.errors import UserError
from ...images.decoding import ENDINGS

if TYPE_CHECKING:
    from pandas import DataFrame

SUFFIXES = (".csv", ".parquet")
SEPARATORS = ",;\t"


def table_files(path: Path) -> dict[str, Path]:
    """The tables ``train`` and, if there is one, ``test`` of a file or a folder; empty where it has none.

    A folder has ``{train,test}.{csv,parquet}`` and no pictures, neither as files nor in the tables.
    """
    if path.is_file() and path.suffix in SUFFIXES:
        return {"train": path}
    found = {
        split: next((file for suffix in SUFFIXES if (file := path / f"{split}{suffix}").is_file()), None)
        for split in ("train", "test")
    }
    train = found["train"]
    if not train or _has_pictures(train) or any(p.suffix.lower() in ENDINGS for p in path.rglob("*")):
        return {}
    return {split: file for split, file in found.items() if file}


def _has_pictures(path: Path) -> bool:
    """Whether a column is bytes, or a record of them, as the hub's datasets of images have it."""
    if path.suffix != ".parquet":
        return False
    import pyarrow
    from pyarrow import parquet, types

    try:
        fields = parquet.read_schema(path).types
    except (OSError, pyarrow.ArrowException):
        return False  # it is told when it is read
    return any(types.is_struct(t) or types.is_binary(t) or types.is_large_binary(t) for t in fields)


def read_table(path: Path) -> "DataFrame":
    """The rows of a file, its columns' names as text.

    A CSV file has a header; what separates is the one of comma, semicolon and tab of which its first line
    has the most outside quotes. Empty fields, ``NA``, ``NaN``, ``null`` and the like are missing values, as
    in pandas. The index of a Parquet file is a column like the others.

    Raises
    ------
    UserError
        When it cannot be read, or has no rows.
    """
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        else:
            with path.open(encoding="utf-8") as file:
                header = re.sub('"[^"]*"', "", file.readline())
            separator = max(SEPARATORS, key=header.count)
            with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
                table = pd.read_csv(path, sep=separator, index_col=False, low_memory=False)
    except pd.errors.ParserWarning as error:
        told = "rows with more fields than its header has names"
        raise UserError(f"dataset: {str(path)!r} has {told}") from error
    except Exception as error:  # pandas and pyarrow raise anything
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"dataset: cannot load {str(path)!r}: {reason[0]}") from error
    if not len(table):
        raise UserError(f"dataset: {str(path)!r} has no rows")
    if any(name is not None for name in table.index.names):
        table = table.reset_index()
    return table.rename(columns=str)

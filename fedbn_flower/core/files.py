"""Write files atomically, and rows to CSV files that survive a crash."""

import csv
import hashlib
import io
import json
import logging
import math
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .free_memory import regular

Row = Mapping[str, object]

UNFINISHED = ".tmp"
ONLY_OWNER = 0o600
"""The mode of a file that nobody else may read."""
MOST_COLUMNS = 1000
PARQUET = ".parquet"
LARGE = 2**25
"""Bytes of a CSV file, about 400,000 clients' rows, from which on it is written as Parquet too."""

LOGGER = logging.getLogger("flwr.fedbn")


def absolute(name: str) -> str:
    """Return a path in full, whatever the current folder is later."""
    return os.path.abspath(path_of(name))


def path_of(text: str) -> Path:
    """Return a path with ``~`` and ``~name`` expanded; without such a home they stay as they are."""
    return Path(os.path.expanduser(text))


def write_atomically(path: Path, content: bytes | str, mode: int = 0o666) -> None:
    """Write to a temporary file in the same folder, fsync it, and rename it; ``mode`` as `os.open` has it.

    Raises
    ------
    OSError
        When it cannot be written, or a device, a pipe or a folder is in its place.
    """
    regular(path)
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{UNFINISHED}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_all(folder: Path, files: Mapping[str, bytes | str]) -> None:
    """Write files of a folder by name, one after the other, each as `write_atomically` does.

    A name may be that of a file in a folder of the folder, which is made.
    """
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_atomically(folder / name, content)


def remove_unfinished(folder: Path, beginning: str = "") -> None:
    """Remove the temporary files of killed writers from a folder and the folders in it.

    ``beginning`` limits this to files whose final names begin so.
    """
    for path in folder.rglob(f".{beginning}*{UNFINISHED}"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Fsync a folder, so that files moved into it survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest_of(arrays: Mapping[str, NDArray]) -> str:
    """Return a SHA-256 of the names, dtypes, shapes and contents of arrays."""
    return sha256_of(
        (json.dumps([name, str(array.dtype), list(array.shape)]), array)
        for name, array in sorted(arrays.items())
    )


def sha256_of(arrays: Iterable[tuple[str, NDArray]], beginning: str = "") -> str:
    """Return a SHA-256 of a text and of the contents of arrays, each after a text that describes it."""
    digest = hashlib.sha256(beginning.encode())
    for text, array in arrays:
        digest.update(text.encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON; numbers that are not finite become ``null``."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def csv_text(columns: Iterable[str], rows: Iterable[Row]) -> str:
    """Return rows as CSV with a header.

    A column that a row lacks stays empty. Cells that a spreadsheet would take for a formula are escaped.
    """
    names = list(columns)
    return csv_lines(names, ([no_formula(row.get(name, "")) for name in names] for row in rows))


def csv_lines(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows of cells as CSV with a header. Only the header's cells are escaped."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(no_formula, columns))
    writer.writerows(rows)
    return text.getvalue()


def no_formula(cell: object) -> object:
    """Put an apostrophe before text that a spreadsheet would take for a formula; keep numbers."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


class CsvLog:
    """A CSV file to which rows are appended; they survive a power failure once `sync` has returned.

    A row with a new column rewrites the file: the column is empty in the earlier rows. Beyond `MOST_COLUMNS`
    new columns are left out, with one warning.
    """

    def __init__(self, path: Path, columns: Iterable[str], last_round: int = 0) -> None:
        """Create the file, or keep the rows of an existing one up to ``last_round``."""
        self.path = path
        self.columns = list(columns)
        self.warned = False
        """Whether the warning about too many columns was logged."""
        rows: list[dict[str, str]] = []
        if last_round:
            with regular(path).open(newline="") as file:
                reader = csv.DictReader(file)
                rows = list(_until(last_round, reader))
                self.columns = list(reader.fieldnames or columns)
        write_atomically(path, csv_text(self.columns, rows))
        path.with_suffix(PARQUET).unlink(missing_ok=True)  # of a run that goes on: without the further rows

    def append(self, rows: list[Row]) -> None:
        """Append rows in one write."""
        rows = [{str(no_formula(name)): value for name, value in row.items()} for row in rows]
        if new := self._new_columns(rows):
            with self.path.open(newline="") as file:
                earlier = list(csv.DictReader(file))
            self.columns += new
            write_atomically(self.path, csv_text(self.columns, [*earlier, *rows]))
            return
        lines = csv_text(self.columns, rows).split("\n", 1)[1]
        with self.path.open("ab", buffering=0) as file:  # one write: a kill leaves all of it, or none
            file.write(lines.encode())

    def write_columns(self) -> None:
        """Write a large table by columns too, as Parquet. Numbers keep their bits."""
        if self.path.stat().st_size < LARGE:
            return
        import pyarrow as pa
        from pyarrow import csv as columns
        from pyarrow import parquet

        options = columns.ConvertOptions(null_values=["", "nan"])
        table = columns.read_csv(self.path, convert_options=options)
        empty = {field.name: pa.float64() for field in table.schema if pa.types.is_null(field.type)}
        schema = [(field.name, empty.get(field.name, field.type)) for field in table.schema]
        content = io.BytesIO()
        parquet.write_table(table.cast(pa.schema(schema)), content)
        write_atomically(self.path.with_suffix(PARQUET), content.getvalue())

    def _new_columns(self, rows: list[Row]) -> list[str]:
        new = [name for name in dict.fromkeys(n for r in rows for n in r) if name not in self.columns]
        left = max(0, MOST_COLUMNS - len(self.columns))
        if len(new) > left and not self.warned:
            self.warned = True
            LOGGER.warning(
                "%s has %d columns, the maximum: further metrics are left out", self.path.name, MOST_COLUMNS
            )
        return new[:left]

    def sync(self) -> None:
        """Fsync the file."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())


def _until(last_round: int, rows: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the rows up to the last one of ``last_round``.

    Stop at a line that a kill has cut off: its round is not a number, or lower than the one before.
    """
    current = 0
    for row in rows:
        if not row["round"].isdigit() or not current <= int(row["round"]) <= last_round:
            return
        current = int(row["round"])
        yield row

"""Files that are never half-written."""

import csv
import io
import json
import logging
import math
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Row = Mapping[str, object]

UNFINISHED = ".tmp"
MOST_COLUMNS = 1000

LOGGER = logging.getLogger("flwr.fedbn")


def path_of(text: str) -> Path:
    """The path that a user means: ``~`` and ``~name`` are homes, and stay as they are where there is none."""
    return Path(os.path.expanduser(text))


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write beside the file, fsync, and move into its place."""
    data = content.encode() if isinstance(content, str) else content
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}{UNFINISHED}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def remove_unfinished(folder: Path, beginning: str = "") -> None:
    """Remove what writers that were killed have left beside their files, in all of the folder; or beside
    those whose names have this beginning."""
    for path in folder.rglob(f".{beginning}*{UNFINISHED}"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Write a folder's own entries to disk, so that files moved into it survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON, in which a number that is not finite is ``null``."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def csv_text(columns: Iterable[str], rows: Iterable[Row]) -> str:
    """Rows as CSV with a header; what a row lacks stays empty. No cell is a formula to a spreadsheet."""
    text = io.StringIO()
    names = list(columns)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_no_formula, names))
    writer.writerows([_no_formula(row.get(name, "")) for name in names] for row in rows)
    return text.getvalue()


def _no_formula(cell: object) -> object:
    """A text that would begin a formula, behind an apostrophe; numbers are what they are."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


class CsvLog:
    """A CSV file that grows by whole groups of rows; they survive a power failure once `sync` returned.

    A column that first appears later makes the file be written anew, with the column empty above. Beyond
    `MOST_COLUMNS` there are no new ones.
    """

    def __init__(self, path: Path, columns: Iterable[str], last_round: int = 0) -> None:
        """Start the file, or go on with one after the rows of ``last_round``."""
        self.path = path
        self.columns = list(columns)
        self.told = False
        """Whether it was told that there are too many columns."""
        rows: list[dict[str, str]] = []
        if last_round:
            with path.open(newline="") as file:
                reader = csv.DictReader(file)
                rows = list(_until(last_round, reader))
                self.columns = list(reader.fieldnames or columns)
        write_atomically(path, csv_text(self.columns, rows))

    def append(self, rows: list[Row]) -> None:
        """Add rows in one write."""
        rows = [{str(_no_formula(name)): value for name, value in row.items()} for row in rows]
        if new := self._new_columns(rows):
            with self.path.open(newline="") as file:
                earlier = list(csv.DictReader(file))
            self.columns += new
            write_atomically(self.path, csv_text(self.columns, [*earlier, *rows]))
            return
        lines = csv_text(self.columns, rows).split("\n", 1)[1]
        with self.path.open("ab", buffering=0) as file:  # one write: a kill finds all of it done, or nothing
            file.write(lines.encode())

    def _new_columns(self, rows: list[Row]) -> list[str]:
        new = [name for name in dict.fromkeys(n for r in rows for n in r) if name not in self.columns]
        left = max(0, MOST_COLUMNS - len(self.columns))
        if len(new) > left and not self.told:
            self.told = True
            LOGGER.warning(
                "%s has %d columns: the further metrics are left out", self.path.name, MOST_COLUMNS
            )
        return new[:left]

    def sync(self) -> None:
        """Have the rows on disk."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())


def _until(last_round: int, rows: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Rows up to the last of that round. A kill may have torn the file's last line: its round is not a
    number, or lower than the one above it."""
    current = 0
    for row in rows:
        if not row["round"].isdigit() or not current <= int(row["round"]) <= last_round:
            return
        current = int(row["round"])
        yield row

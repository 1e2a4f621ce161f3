"""Files that are never half-written."""

import csv
import io
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

Row = Mapping[str, object]

UNFINISHED = ".tmp"


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


def csv_text(columns: Iterable[str], rows: Iterable[Row]) -> str:
    """Rows as CSV with a header; what a row lacks stays empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


class CsvLog:
    """A CSV file that grows by whole groups of rows; they survive a power failure once `sync` returned.

    A column that first appears later makes the file be written anew, with the column empty above.
    """

    def __init__(self, path: Path, columns: Iterable[str], last_round: int = 0) -> None:
        """Start the file, or go on with one after the rows of ``last_round``."""
        self.path = path
        self.columns = list(columns)
        rows: list[dict[str, str]] = []
        if last_round:
            with path.open(newline="") as file:
                reader = csv.DictReader(file)
                rows = list(_until(last_round, reader))
                self.columns = list(reader.fieldnames or columns)
        write_atomically(path, csv_text(self.columns, rows))

    def append(self, rows: list[Row]) -> None:
        """Add rows in one write."""
        if new := [key for key in dict.fromkeys(k for r in rows for k in r) if key not in self.columns]:
            with self.path.open(newline="") as file:
                earlier = list(csv.DictReader(file))
            self.columns += new
            write_atomically(self.path, csv_text(self.columns, [*earlier, *rows]))
            return
        lines = csv_text(self.columns, rows).split("\n", 1)[1]
        with self.path.open("ab", buffering=0) as file:  # one write: a kill finds all of it done, or nothing
            file.write(lines.encode())

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

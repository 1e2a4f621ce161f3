"""How much memory a Parquet file or a workbook takes, found before it is read."""

import re
from pathlib import Path
from typing import Any

from ...core.free_memory import Bound, check_fits
from .header import CELL, CHUNK

EXCEL_CELL = 100
"""Bytes of a cell of a workbook, which is read as Python's objects."""
PLACE = re.compile(rb'\br="([A-Z]{1,3})(\d{1,7})"')
"""Where a cell of a sheet is, such as ``AB12``."""
HIDDEN = re.compile(rb'<row\b[^>]*\bhidden="(1|true)"[^>]*>\s*<c')
"""A hidden row that has cells."""
LONGEST = 256
"""Bytes of a row's tag and the next, in which these stand."""
READ = 2**24
"""Bytes of a Parquet file's texts that are read at a time to see how long they are."""
LETTERS = 26


def check_parquet(path: Path) -> None:
    """Compare the values of a Parquet file, those in lists too, and its bytes with the memory.

    Encoded pictures, which stay on the disk, do not count. A text that comes again and again is in the file
    once: where memory might not hold the texts, they are read to see how long they are.

    Raises
    ------
    UserError
        When they do not fit.
    """
    from pyarrow import parquet

    with parquet.ParquetFile(path.absolute()) as file:
        metadata, schema = file.metadata, file.schema
        used = [i for i in range(metadata.num_columns) if not _is_bytes(schema.column(i))]
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        columns = [group.column(i) for group in groups for i in used]
        cells = max(metadata.num_rows * len(used), sum(column.num_values for column in columns))
        needed = max(cells * CELL, 2 * sum(column.total_uncompressed_size for column in columns))
        check_fits("dataset", f"{metadata.num_rows} rows of {str(path)!r}", needed)
        texts = [column for column in columns if column.physical_type == "BYTE_ARRAY"]
        bound, size = Bound(path), 0
        if sum(column.num_values * column.total_uncompressed_size for column in texts) > bound.most:
            longest = max(column.total_uncompressed_size for column in texts)
            names = list(dict.fromkeys(column.path_in_schema for column in texts))
            for batch in file.iter_batches(max(1, READ // longest), columns=names):
                size += batch.nbytes
                bound.check(size)


def _is_bytes(column: Any) -> bool:
    """Return whether a column of a Parquet file holds bytes that are no text."""
    return bool(column.physical_type == "BYTE_ARRAY" and column.logical_type.type == "NONE")


def check_sheet(path: Path, sheet: Any) -> int:
    """Compare a sheet's cells, of which each row gets as many as the widest, with the memory.

    Returns how many rows with cells are hidden, by hand or by a filter.

    Raises
    ------
    UserError
        When they do not fit.
    """
    last_row, last_column, cells, hidden, end = 0, 0, 0, 0, b""
    with sheet._get_source() as source:  # openpyxl itself reads all rows to say how many there are
        for chunk in iter(lambda: source.read(CHUNK), b""):
            for letters, row in PLACE.findall(end + chunk):
                last_row = max(last_row, int(row))
                last_column = max(last_column, _number_of(letters))
            cells += chunk.count(b"<c")
            hidden += sum(found.end() > len(end) for found in HIDDEN.finditer(end + chunk))
            end = chunk[-LONGEST:]
    check_fits(
        "dataset", f"{last_row} rows of {str(path)!r}", max(cells, last_row * last_column) * EXCEL_CELL
    )
    return hidden


def _number_of(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * LETTERS + letter - ord("A") + 1
    return number

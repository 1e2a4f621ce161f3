"""Read a file with a row for each client."""

import csv
from collections.abc import Sequence

from ...core.errors import not_allowed
from ...core.files import path_of


def rows_of(key: str, name: str, allowed: str, header: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Return the rows of the CSV file that a key names, each with the number of its line.

    Raises
    ------
    UserError
        When it cannot be read, or has another header.
    """
    try:
        with path_of(name).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            found = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, RuntimeError, UnicodeDecodeError, csv.Error) as error:
        raise not_allowed(key, name, f"{allowed} ({error})") from error
    if found != list(header):
        raise not_allowed(key, name, f"a CSV file with header {','.join(header)}")
    return rows

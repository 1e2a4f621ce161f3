"""Read files of a folder that anybody may have written, or torn: what is wrong with one is said in a line."""

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from ..core.errors import UserError
from ..core.free_memory import regular
from ..core.text import visible

LONGEST = 200
"""Characters of a reason."""
DAMAGES = (
    *(ArithmeticError, AttributeError, LookupError, NotImplementedError, OSError, RecursionError, TypeError),
    *(ValueError, csv.Error, SafetensorError),
)
"""What a damaged file makes its readers raise."""


@contextmanager
def damage_as_user_errors(key: str, folder: object) -> Iterator[None]:
    """Raise a UserError of one line, which begins with the key, for what a damaged folder of results raises.

    A pipe that nobody reads is not meant: it is where the output goes.
    """
    try:
        yield
    except (UserError, BrokenPipeError):
        raise
    except DAMAGES as error:
        why = f"{type(error).__name__}: {ascii(str(error))[1:-1]}"[:LONGEST]
        raise UserError(f"{key}: {str(folder)!r} cannot be read: a file in it is damaged ({why})") from error


def json_object(path: Path) -> dict[str, Any]:
    """Return the keys and values of a JSON file.

    Raises
    ------
    OSError
        When it cannot be read.
    ValueError
        When it is not JSON, or not an object.
    """
    try:
        found = json.loads(regular(path).read_text())
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} has no keys")
    return found


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file, none if there is no file; stop at a row that a kill left incomplete."""
    if not path.exists():
        return
    with regular(path).open(newline="") as file:
        for row in csv.DictReader(file):
            if None in row.values():
                return
            yield seen(row)


def seen(value: Any) -> Any:
    """Return a value in which every text, keys too, is `visible`."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {seen(key): seen(item) for key, item in value.items()}
    return [seen(item) for item in value] if isinstance(value, list) else value

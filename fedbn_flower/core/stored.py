"""Read files of a folder that anybody may have written, or torn: what is wrong with one is said in a line.

And what such a folder holds: a run, a sweep, a search, or the run of a Flower app.
"""

import csv
import json
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from .errors import UserError
from .free_memory import regular
from .text import joined, visible

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

    A fault of ours may raise the same, so the line says where. A pipe that nobody reads is not meant: it is
    where the output goes.
    """
    try:
        yield
    except (UserError, BrokenPipeError):
        raise
    except DAMAGES as error:
        why = f"{type(error).__name__}: {ascii(str(error))[1:-1]}"[:LONGEST]
        *_, last = traceback.extract_tb(error.__traceback__)
        raise UserError(
            f"{key}: {str(folder)!r} cannot be read: a file in it is damaged, or this is a fault of "
            f"fedbn-flower ({why}; {Path(last.filename).name}, line {last.lineno})"
        ) from error


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


CONFIG = "config.json"
"""The file that describes a run, in the run's folder."""
EXPERIMENT, GRID = "experiment.json", "grid.csv"
"""The file that describes a sweep, in the sweep's folder, and the table of its runs."""
SEARCH_FILE, TRIALS = "search.json", "search.csv"
"""The file that describes a search, in the search's folder, and the table of its trials."""
KIND = "folder-of"
"""The entry of `CONFIG` that says whose it is; versions up to 0.2 wrote none."""
RUN, SWEEP, SEARCH, APP = ANY = "run", "sweep", "search", "app"
IN_WORDS = {RUN: "a run", SWEEP: "a sweep", SEARCH: "a search", APP: "a Flower app's run"}


def kind_of(folder: Path) -> str | None:
    """Return what a folder holds, one of `ANY`; None if it is nobody's folder of results.

    Raises
    ------
    OSError, ValueError
        When its ``config.json`` cannot be read.
    """
    for kind, names in ((SEARCH, (SEARCH_FILE, TRIALS)), (SWEEP, (EXPERIMENT, GRID))):
        if any((folder / name).exists() for name in names):
            return kind
    if not (folder / CONFIG).exists():
        return None
    config = json_object(folder / CONFIG)
    if KIND in config:
        return config[KIND] if config[KIND] in (RUN, APP) else None
    if {"strategy", "client"} <= config.keys():
        return RUN
    return APP if {"app", "overrides"} <= config.keys() else None


def checked_kind(folder: Path, key: str, *expected: str) -> str:
    """Return what a folder holds, which is one of the kinds that are expected.

    Raises
    ------
    UserError
        When it holds another, or nothing of ours; the message begins with the key.
    """
    kinds = joined([IN_WORDS[kind] for kind in expected], "or")
    try:
        found = kind_of(folder)
    except (OSError, ValueError) as error:
        raise UserError(f"{key}: {str(folder)!r} is not the folder of {kinds} ({error})") from error
    if found in expected:
        return found
    if found:
        raise UserError(f"{key}: {str(folder)!r} holds {IN_WORDS[found]}; expected the folder of {kinds}")
    lacks = f": it has no {CONFIG}" if not (folder / CONFIG).exists() else ""
    raise UserError(f"{key}: {str(folder)!r} is not the folder of {kinds}{lacks}")

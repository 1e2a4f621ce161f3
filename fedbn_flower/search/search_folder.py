"""The folder of a search: ``search.json``, ``search.csv``, ``trials/NUMBER/`` and ``best/``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ..config.gone import GONE, in_new_keys
from ..config.keys import RUN_KEYS
from ..core.errors import UserError, not_allowed
from ..core.files import csv_text, json_text, write_atomically
from ..core.stored import SEARCH_FILE, TRIALS, json_object, rows_of
from ..names import OBJECTIVE
from ..results.resume import MAY_CHANGE, as_before
from ..results.run_directory import default_run_folder, prepare_run_folder

COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
PLAIN, TEXTS = TypeAdapter(dict[str, str | bool | int | float]), TypeAdapter(dict[str, str])
CHANGEABLE = MAY_CHANGE - {"rounds"}
"""Keys that may have new values when a search is resumed."""
LEADING_COLUMNS = ("trial", "state", "rounds", "seconds", "value")


def read_search(folder: Path) -> dict[str, Any]:
    """Read ``search.json``, in the keys that there are.

    Raises
    ------
    UserError
        When it cannot be read, or has a range of a key that is gone.
    """
    try:
        stored = json_object(folder / SEARCH_FILE)
        tables = {key: in_new_keys(PLAIN.validate_python(stored[key])) for key in ("values", "configuration")}
        space = TEXTS.validate_python(stored["search"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"resume: {str(folder)!r} is not the folder of a search ({error})") from error
    return stored | tables | {"search": _space_in_new_keys(space, folder)}


def _space_in_new_keys(space: Mapping[str, str], folder: Path) -> dict[str, str]:
    """A range of a key that is gone has no form in the new one; single values have."""
    if ranges := [key for key in GONE if ".." in str(space.get(key))]:
        gone = f"{ranges[0]}={space[ranges[0]]}"
        raise UserError(f"resume: the search in {str(folder)!r} is of {gone}, a range of a key that is gone")
    several = {*GONE, OBJECTIVE.key}
    listed = in_new_keys({k: text.split(",") if k in several else text for k, text in space.items()})
    return {key: ",".join(text) if isinstance(text, list) else text for key, text in listed.items()}


def prepare_search_folder(run_dir: str, description: Mapping[str, Any]) -> Path:
    """Return the folder of a search; create it unless it is that of an earlier search, to be resumed.

    Raises
    ------
    UserError
        When the folder has other contents, or cannot be created.
    """
    folder = default_run_folder() if run_dir == "auto" else Path(run_dir)
    if not (folder / SEARCH_FILE).exists():
        prepare_run_folder(folder)
        write_search(folder, {**description, "best": None})
    return folder


def write_search(folder: Path, description: Mapping[str, Any]) -> None:
    """Write ``search.json``."""
    write_atomically(folder / SEARCH_FILE, json_text(description, indent=2) + "\n")


def check_same_search(folder: Path, description: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse to resume another search than the folder's; return its ``search.json``.

    A key that the version of the search did not have counts as what that version did.

    Raises
    ------
    UserError
        For the first key that differs and is not in `CHANGEABLE`.
    """
    stored = read_search(folder)
    if stored["search"] != description["search"]:
        texts = [" ".join(f"{k}={v}" for k, v in found["search"].items()) for found in (description, stored)]
        raise not_allowed("search", texts[0], f"{texts[1]!r}, as in the search of {str(folder)!r}")
    configuration = {key: field.default for key, field in RUN_KEYS.items()}
    configuration |= as_before(stored["configuration"])
    for key, value in description["configuration"].items():
        if key not in CHANGEABLE and configuration.get(key) != value:
            expected = f"{configuration.get(key)!r}, as in the search of {str(folder)!r}"
            raise not_allowed(key, value, expected)
    return stored


class TrialTable:
    """``search.csv``: a row for each trial that has ended."""

    def __init__(self, folder: Path, keys: list[str]) -> None:
        self.path = folder / TRIALS
        self.columns = [*LEADING_COLUMNS, *keys, "folder"]
        self.rows: list[dict[str, str]] = [in_new_keys(row) for row in rows_of(self.path)]

    def add(self, row: Mapping[str, object]) -> None:
        """Add a row and write the file atomically."""
        self.rows.append({key: str(value) for key, value in row.items()})
        write_atomically(self.path, csv_text(self.columns, self.rows))

    def best(self, higher: bool) -> dict[str, str] | None:
        """Return the row of the best complete trial, the first of equal ones; None if there is none."""
        complete = [row for row in self.rows if row["state"] == COMPLETE]
        sign = 1 if higher else -1
        return max(complete, key=lambda row: sign * float(row["value"]), default=None)

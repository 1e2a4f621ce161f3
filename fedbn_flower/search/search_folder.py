"""The folder of a search: ``search.json``, ``search.csv``, ``trials/NUMBER/`` and ``best/``."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import UserError, not_allowed
from ..core.files import csv_text, json_text, write_atomically
from ..results.run_directory import default_run_folder, prepare_run_folder
from ..results.run_reader import rows_of

FACTS, TABLE = "search.json", "search.csv"
COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
FIRST = ("trial", "state", "rounds", "seconds", "value")


def stored_search(folder: Path) -> dict[str, Any]:
    """What ``search.json`` tells.

    Raises
    ------
    UserError
        When it cannot be read.
    """
    try:
        return dict(json.loads((folder / FACTS).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"resume: {str(folder)!r} is not the folder of a search ({error})") from error


def prepared_search_folder(run_dir: str, facts: Mapping[str, Any]) -> Path:
    """The folder of a search: a new one, or that of the same search, which goes on.

    Raises
    ------
    UserError
        When it has something else in it, or cannot be made.
    """
    folder = default_run_folder() if run_dir == "auto" else Path(run_dir)
    if not (folder / FACTS).exists():
        prepare_run_folder(folder)
        write_facts(folder, {**facts, "best": None})
    return folder


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``search.json``."""
    write_atomically(folder / FACTS, json_text(facts, indent=2) + "\n")


def check_same(folder: Path, facts: Mapping[str, Any], may_change: frozenset[str]) -> dict[str, Any]:
    """Refuse to go on with another search than the folder's; what that one's ``search.json`` tells.

    Raises
    ------
    UserError
        For the first key that differs, but for those that may.
    """
    stored = stored_search(folder)
    if stored["search"] != facts["search"]:
        texts = [" ".join(f"{k}={v}" for k, v in found["search"].items()) for found in (facts, stored)]
        raise not_allowed("search", texts[0], f"{texts[1]!r}, which {str(folder)!r} is of")
    for key, value in facts["configuration"].items():
        if key not in may_change and stored["configuration"].get(key) != value:
            told = f"{stored['configuration'].get(key)!r}, as in the search of {str(folder)!r}"
            raise not_allowed(key, value, told)
    return stored


class Table:
    """``search.csv``: a row for every trial that has ended."""

    def __init__(self, folder: Path, keys: list[str]) -> None:
        self.path = folder / TABLE
        self.columns = [*FIRST, *keys, "folder"]
        self.rows = list(rows_of(self.path))

    def add(self, row: Mapping[str, object]) -> None:
        """Add a row; it is on disk, or all is as it was."""
        self.rows.append({key: str(value) for key, value in row.items()})
        write_atomically(self.path, csv_text(self.columns, self.rows))

    def best(self, higher: bool) -> dict[str, str] | None:
        """The row of the best complete trial, of equal ones the first; None without a complete one."""
        complete = [row for row in self.rows if row["state"] == COMPLETE]
        sign = 1 if higher else -1
        return max(complete, key=lambda row: sign * float(row["value"]), default=None)

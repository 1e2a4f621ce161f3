"""What a folder of results holds: a run, a sweep, a search, or the run of a Flower app."""

from pathlib import Path

from ..core.errors import UserError
from ..core.listing import joined
from .stored import json_object

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

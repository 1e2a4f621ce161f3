"""How the sites of a consortium stand, as its annex says: asked now and then, not at each look."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from time import monotonic

from .. import annexes
from ..core.errors import not_allowed
from ..results.report.tables import Table

KIND, NAME, FILE = "federations", "consortium", "consortium.toml"
"""What an annex brings, called with a consortium's folder; and the file that such a folder has."""
AGAIN = 30
"""Seconds for which nobody is asked again."""


class Standing:
    """What is said of a consortium: tables by their titles."""

    def __init__(self, ask: Callable[[Path], Mapping[str, Table]], folder: Path) -> None:
        self.folder = folder
        self.tables = lru_cache(1)(lambda stamp: ask(folder))

    @property
    def stamp(self) -> int:
        """With which to ask for the tables."""
        return int(monotonic() // AGAIN)


def standing_of(asked: Path | None, watched: Path) -> Standing | None:
    """Return what is said of the consortium of a folder: the one asked for, else the one that is watched.

    None if the watched one is no consortium's, or the annex is not there.

    Raises
    ------
    UserError
        When that is so of the folder that is asked for.
    """
    if (folder := asked or watched).joinpath(FILE).is_file():
        ask = annexes.load(KIND, NAME) if asked else annexes.brought(KIND).get(NAME)
        return Standing(ask, folder) if ask else None
    if asked:
        raise not_allowed(NAME, str(asked), f"a folder with {FILE}")
    return None

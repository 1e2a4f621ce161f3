"""Runs as the rows of a table: what the page and the terminal show of each."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..config.help import as_text
from ..core.ground.columns import PRIVACY, SECONDS
from ..names import short
from ..records.metrics import shown
from ..results.report.tables import Table
from .index import Entry, differing

MOST_KEYS = 6
"""Keys in which runs differ that have a column; those that follow from the algorithms have none."""
ALGORITHMS = ("strategy", "client", "objective")


@dataclass(frozen=True)
class Columns:
    """The columns of a table of runs: words, keys in which they differ, and figures."""

    keys: Sequence[str]
    figures: Sequence[str]

    @classmethod
    def of(cls, entries: Sequence[Entry], *asked: str) -> "Columns":
        """Return those of runs; what was asked for has one, too."""
        every = {key: [str(entry.keys.get(key)) for entry in entries] for key in differing(entries)}
        algorithms = [key for key in ALGORITHMS if key in every]
        names = [*zip(*(every[key] for key in algorithms), strict=True)] or [()] * len(entries)
        own = [
            key for key, values in every.items() if len({*zip(names, values, strict=True)}) > len({*names})
        ]
        keys = list(dict.fromkeys([*algorithms, *(key for key in asked if key in every), *own]))[:MOST_KEYS]
        compared = dict.fromkeys(entry.run.main_metric for entry in entries)
        others = ("loss", PRIVACY[0], SECONDS, "failures", *asked)
        measured = {name for entry in entries for name in entry.figures} - {*keys}
        return cls(keys, [name for name in dict.fromkeys([*compared, *others]) if name in measured])

    @property
    def names(self) -> list[str]:
        return ["run", "state", *self.keys, "round", "rounds", *self.figures]


def cell(entry: Entry, name: str) -> str:
    """Return a value of a run as it is shown."""
    value = entry.values.get(name)
    if isinstance(value, float) and value == entry.figures.get(name):
        return shown(name, value)
    return short(as_text(value))


def time_text(seconds: float | None) -> str:
    """Return a time as ``45 s``, ``12 min`` or ``3.5 h``; empty for None."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def table_of(entries: Sequence[Entry], *asked: str) -> Table:
    """Return the table for a terminal; a star stands before the names of starred runs."""
    columns = Columns.of(entries, *asked)
    names = [*columns.names, *(["note"] if any(entry.values["note"] for entry in entries) else [])]
    rows = [
        [("* " if entry.values["starred"] else "") + entry.name, *(cell(entry, name) for name in names[1:])]
        for entry in entries
    ]
    return Table(names, rows, words=2 + len(columns.keys))

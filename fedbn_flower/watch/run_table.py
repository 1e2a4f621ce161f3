"""Runs as the rows of a table: what the page and the terminal show of each."""

from collections.abc import Sequence

from ..config.help import as_text
from ..core.ground.columns import PRIVACY, SECONDS
from ..names import short
from ..records.metrics import shown
from ..results.report.tables import Table
from .index import Entry, differing

MOST_KEYS = 6
"""Keys in which runs differ that have a column; those that follow from the algorithms have none."""
ALGORITHMS = ("strategy", "client", "objective")


def keys_of(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """Return the algorithms and other keys in which runs differ, with each run's value.

    Keys that follow from the algorithms are left out.
    """
    every = {key: [as_text(entry.keys.get(key)) for entry in entries] for key in differing(entries)}
    algorithms = [key for key in ALGORITHMS if key in every]
    names = [*zip(*(every[key] for key in algorithms), strict=True)] or [()] * len(entries)
    own = [key for key in every if len({*zip(names, every[key], strict=True)}) > len({*names})]
    return {key: every[key] for key in dict.fromkeys([*algorithms, *own])}


def columns_of(entries: Sequence[Entry], *asked: str) -> tuple[list[str], list[str]]:
    """Return the columns of a table of runs: of words, keys in which they differ, and of figures.

    What is asked for has one, too.
    """
    own = [*keys_of(entries)]
    measured = {name for entry in entries for name in entry.figures}
    wanted = [key for key in asked if key not in measured and any(key in entry.keys for entry in entries)]
    first = [key for key in (*ALGORITHMS, "dataset") if key in own]
    keys = [key for key in dict.fromkeys([*first, *wanted, *own]) if key != "rounds"][:MOST_KEYS]
    metrics = [entry.main_metric for entry in entries]
    measured -= {*keys}
    figures = dict.fromkeys([*metrics, "loss", PRIVACY[0], SECONDS, "failures", *asked])
    return ["run", "state", *keys], ["round", "rounds", *(name for name in figures if name in measured)]


def cell(entry: Entry, name: str) -> str:
    """Return a value of a run as it is shown."""
    value = entry.values.get(name)
    is_figure = isinstance(value, float) and value == entry.figures.get(name)
    return shown(name, value) if is_figure else short(as_text(value))


def table_of(entries: Sequence[Entry], *asked: str) -> Table:
    """Return the table for a terminal; a star stands before the names of starred runs."""
    words, figures = columns_of(entries, *asked)
    names = [*words, *figures, *(["note"] if any(entry.values["note"] for entry in entries) else [])]
    rows = [["* " * e.values["starred"] + e.name, *(cell(e, name) for name in names[1:])] for e in entries]
    return Table(names, rows, words=len(words))

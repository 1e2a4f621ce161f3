"""What a picture of runs shows: a line for each run, or the mean and spread of each group; and by site."""

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from itertools import chain, zip_longest
from math import isfinite, isnan, nan
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.files import csv_lines
from ..core.free_memory import regular
from ..core.stored import rows_of
from ..results.rare_event import leading_by_round
from ..results.run_reader import COSTS
from .index import Entry
from .run_table import cell

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

ROUND = "round"
AXES = (ROUND, *COSTS)
MOST_LINES = 20
"""Lines of a picture; more are asked for by name."""
FAILURES = "failures"
BLOCK = 1 << 18
"""Bytes of a file that are read at once."""


@dataclass(frozen=True)
class Line:
    """A curve; ``spread`` is the standard deviation of several ``runs``, empty of a single one."""

    name: str
    x: list[float]
    y: list[float]
    spread: list[float] = field(default_factory=list)
    runs: int = 1


def line_of(name: str, entries: Sequence[Entry], metric: str, axis: str) -> Line:
    """Return the curve of a run, or the mean of several in the rounds that all have, as finite numbers.

    The axis is `ROUND` or one of `COSTS`; the spread is the sample standard deviation.
    """
    every = [found for entry in entries if (found := _points(entry, metric, axis))]
    finite = [{r for r, (_, value) in found.items() if isfinite(value) or len(every) < 2} for found in every]
    rounds = sorted(set.intersection(*finite)) if every else []
    values = [[found[number][1] for found in every] for number in rounds]
    x = [fmean(found[number][0] for found in every) for number in rounds]
    return Line(name, x, [*map(fmean, values)], [*map(stdev, values)] if len(every) > 1 else [], len(every))


def _points(entry: Entry, metric: str, axis: str) -> dict[int, tuple[float, float]]:
    """Return by round where a run's points are."""
    points = entry.run.points(metric)
    places = dict(zip(points, map(float, points), strict=True)) if axis == ROUND else entry.run.costs(axis)
    return {number: (places[number], value) for number, value in points.items() if number in places}


def groups_of(entries: Sequence[Entry], key: str) -> dict[str, list[Entry]]:
    """Return runs by a key's value, which the name of the group says."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(f"{key}={cell(entry, key)}", []).append(entry)
    return groups


def smoothed(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of each value and the ones before it, ``window`` in all, without those that are NaN."""
    last = (values[max(0, i + 1 - window) : i + 1] for i in range(len(values)))
    return [fmean([v for v in some if not isnan(v)] or [nan]) for some in last]


def csv_of(lines: Sequence[Line], metric: str, axis: str) -> str:
    """Return the numbers of curves, as the files have them."""
    every = (zip_longest([line.name] * len(line.x), line.x, line.y, line.spread) for line in lines)
    return csv_lines(["run", axis, metric, "standard deviation"], chain.from_iterable(every))


class Sites:
    """A column of ``clients.csv`` by site and round, of which only what has been added is read again.

    Parameters
    ----------
    path : Path
        The file.
    metric : str
        The column that is read beside round, phase and partition.

    Attributes
    ----------
    answered : dict[int, int]
        The last round of each partition.
    """

    def __init__(self, path: Path, metric: str) -> None:
        self.path, self.metric, self._begin, self._place = path, metric, (0, b""), 0

    def read(self) -> "Sites":
        """Read what is new, and return itself."""
        with open(regular(self.path) if self.path.exists() else os.devnull, "rb") as file:
            header, status = file.readline(), os.fstat(file.fileno())
            if (begin := (status.st_ino, header)) != self._begin or status.st_size < self._place:
                self._begin, self._place, self.answered = begin, len(header), dict[int, int]()
                self._values = np.empty((0, 0))  # by partition and round
            names = next(csv.reader([header.decode()]), [])
            kinds = {"round": int, "phase": "U8", "partition": int, self.metric: float}
            here = {names.index(name): (name, kind) for name, kind in kinds.items() if name in names}
            file.seek(self._place)
            while added := (block := file.read(BLOCK))[: block.rfind(b"\n") + 1]:
                text = added.decode().replace(",,", ",nan,").replace(",,", ",nan,").replace(",\n", ",nan\n")
                how = {"delimiter": ",", "quotechar": '"', "comments": None, "usecols": [*here], "ndmin": 1}
                self._add(np.loadtxt(StringIO(text), [*here.values()], **how))  # type: ignore[call-overload]
                self._place = file.seek(self._place + len(added))
        return self

    def _add(self, rows: "Numbers") -> None:
        """Take rows; of a site's phases in a round, the last that has a value counts."""
        rounds, partitions = rows["round"], rows["partition"]
        values = rows[self.metric] if self.metric in (rows.dtype.names or ()) else np.full(len(rows), np.nan)
        known = ~np.isnan(values) & (rows["phase"] != "new")
        self.answered |= dict(zip(partitions.tolist(), rounds.tolist(), strict=True))
        needed = (partitions.max() + 1, rounds.max() + 1)
        more = [(0, max(0, size - has)) for size, has in zip(needed, self._values.shape, strict=True)]
        grown = np.pad(self._values, more, constant_values=np.nan)
        grown[partitions[known], rounds[known]] = values[known]
        self._values = grown

    def of(self, partition: int) -> tuple["Numbers", "Numbers"]:
        """Return the rounds in which a site has a value, and the values."""
        values = self._values[partition] if partition < len(self._values) else np.empty(0)
        rounds = np.flatnonzero(~np.isnan(values))
        return rounds, values[rounds]


@dataclass(frozen=True)
class Federation:
    """What a run's folder says of its sites."""

    entry: Entry
    sites: Sites

    @cached_property
    def names(self) -> dict[int, str]:
        """The sites' names by partition; of data without names, their numbers."""
        named = self.entry.run.client_names
        seen = {*named, *self.sites.answered, *self.failed}
        return {partition: named.get(partition, str(partition)) for partition in sorted(seen)}

    @cached_property
    def failures(self) -> list[Mapping[str, str]]:
        """The rows of ``failures.csv``."""
        return list(rows_of(self.entry.run.folder / "failures.csv"))

    @cached_property
    def failed(self) -> dict[int, list[Mapping[str, str]]]:
        """The same by partition."""
        found: dict[int, list[Mapping[str, str]]] = {}
        for row in self.failures:
            found.setdefault(int(row["partition"]), []).append(row)
        return found

    def lines(self, most: int) -> list[Line]:
        """Return the curves of the first sites."""
        few = ((name, *self.sites.of(partition)) for partition, name in [*self.names.items()][:most])
        return [Line(name, x.astype(float).tolist(), y.tolist()) for name, x, y in few if len(x)]

    def grid(self, metric: str, kind: type[np.floating] = np.float64) -> "Numbers":
        """Return a metric, or the number of failures, by site (rows) and round (columns), of this dtype."""
        done = self.entry.run.rounds_done
        found = np.full((len(self.names), done), 0.0 if metric == FAILURES else np.nan, kind)
        for place, partition in enumerate(self.names):
            rounds, values = self.sites.of(partition)
            if metric == FAILURES:
                failed = [int(row["round"]) for row in self.failed.get(partition, ())]
                rounds, values = np.unique(np.array(failed, dtype=int), return_counts=True)
            shown = (rounds > 0) & (rounds <= done)
            found[place, rounds[shown] - 1] = values[shown]
        return found


def leading_column(entry: Entry, asked: str = "") -> str:
    """Return the column of ``clients.csv`` that is asked for, else that which leads by site and round."""
    return asked or leading_by_round(entry.run.main_metric, entry.is_rare, client_columns(entry))


def client_columns(entry: Entry) -> list[str]:
    """Return the columns of ``clients.csv`` that are measured, and `FAILURES`; none before the first row."""
    row = next(iter(rows_of(entry.run.folder / "clients.csv")), {})
    words = ("round", "phase", "partition", "site", "model")
    return [*(name for name in row if name not in words), *([FAILURES] if row else [])]

"""What a picture of runs shows: a line for each run, or the mean and spread of each group; and by site."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, zip_longest
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from ..core.files import csv_lines
from ..core.free_memory import regular
from ..records.stored import rows_of
from ..results.run_reader import COSTS
from .index import Entry
from .run_table import cell

if TYPE_CHECKING:
    from pandas import DataFrame

ROUND = "round"
AXES = (ROUND, *COSTS)
MOST_LINES = 20
"""Lines of a picture; more are asked for by name."""
FAILURES = "failures"
BLOCK = 1 << 22
"""Bytes of a file that are read at once."""


@dataclass(frozen=True)
class Line:
    """A curve; ``spread`` is the standard deviation of several runs, empty of a single one."""

    name: str
    x: list[float]
    y: list[float]
    spread: list[float] = field(default_factory=list)


def line_of(name: str, entries: Sequence[Entry], metric: str, axis: str) -> Line:
    """Return the curve of a run, or the mean of several in the rounds that all have.

    The axis is `ROUND` or one of `COSTS`; the spread is the sample standard deviation.
    """
    every = [found for entry in entries if (found := _points(entry, metric, axis))]
    rounds = [number for number in every[0] if all(number in found for found in every)] if every else []
    values = [[found[number][1] for found in every] for number in rounds]
    x = [fmean(found[number][0] for found in every) for number in rounds]
    return Line(name, x, [*map(fmean, values)], [*map(stdev, values)] if len(every) > 1 else [])


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
    """Return the mean of each value and the ones before it, ``window`` in all."""
    return [fmean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]


def csv_of(lines: Sequence[Line], axis: str, metric: str) -> str:
    """Return the numbers of curves, as the files have them."""
    every = (zip_longest([line.name] * len(line.x), line.x, line.y, line.spread) for line in lines)
    return csv_lines(["run", axis, metric, "standard deviation"], chain.from_iterable(every))


@dataclass
class Sites:
    """A column of ``clients.csv``, of which only what has been added is read again.

    Parameters
    ----------
    path : Path
        The file.
    metric : str
        The column that is read beside round, phase and partition.
    """

    path: Path
    metric: str
    _place: int = 0
    _begin: object = None

    def read(self) -> "DataFrame":
        """Return the rows so far: ``round``, ``partition`` and ``value``, which may be empty."""
        import pandas as pd
        import pyarrow as pa
        from pyarrow import csv as columns

        with regular(self.path).open("rb") as file:
            header = file.readline()
            begin = self.path.stat().st_ino, header
            if begin != self._begin or self.path.stat().st_size < self._place:
                self._begin, self._place = begin, len(header)
                self._frame = pd.DataFrame({"round": [], "partition": [], "value": []})
                self._frame = self._frame.astype({"round": "int32", "partition": "int32", "value": float})
            options = columns.ConvertOptions(
                include_columns=["round", "phase", "partition", self.metric],
                include_missing_columns=True,
                column_types={"round": pa.int32(), "partition": pa.int32(), self.metric: pa.float64()},
                null_values=["", "nan"],
            )
            reading = columns.ReadOptions(column_names=next(csv.reader([header.decode()])))
            frames, place = [self._frame], file.seek(self._place)
            while added := (block := file.read(BLOCK))[: block.rfind(b"\n") + 1]:
                new = columns.read_csv(pa.BufferReader(added), reading, convert_options=options).to_pandas()
                frames.append(new[new.pop("phase") != "new"].set_axis(self._frame.columns, axis=1))
                place = file.seek(place + len(added))
        self._frame, self._place = pd.concat(frames, ignore_index=True), place
        return self._frame


@dataclass(frozen=True)
class Federation:
    """What a run's folder says of its sites."""

    entry: Entry
    rows: "DataFrame"

    @cached_property
    def names(self) -> dict[int, str]:
        """The sites' names by partition; of data without names, their numbers."""
        named = self.entry.run.client_names
        seen = {*named, *map(int, self.rows["partition"].unique()), *self.failed}
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

    def values(self) -> "DataFrame":
        """Return the value of each site in each round: of its phases the last that has one."""
        return self.rows.dropna(subset=["value"]).drop_duplicates(["round", "partition"], keep="last")

    def lines(self, most: int) -> list[Line]:
        """Return the curves of the first sites."""
        few = list(self.names)[:most]
        values = self.values().astype({"round": float})
        values = values[values["partition"].isin(few)].groupby("partition")
        return [Line(self.names[p], rows["round"].tolist(), rows["value"].tolist()) for p, rows in values]

    def grid(self, metric: str) -> "DataFrame":
        """Return a metric, or the number of failures, by site (rows) and round (columns)."""
        import pandas as pd

        if metric == FAILURES:
            every = pd.DataFrame(self.failures, columns=["round", "partition"]).astype(int).assign(value=1.0)
            found = every.groupby(["partition", "round"])["value"].sum().unstack()
        else:
            found = self.values().pivot(index="partition", columns="round", values="value")
        rounds = range(1, self.entry.rounds_done + 1)
        found = found.reindex(index=[*self.names], columns=rounds)
        return found.fillna(0.0) if metric == FAILURES else found


def client_columns(entry: Entry) -> list[str]:
    """Return the columns of ``clients.csv`` that are measured, and `FAILURES`."""
    row = next(iter(rows_of(entry.run.folder / "clients.csv")), {})
    words = ("round", "phase", "partition", "site", "model")
    return [*(name for name in row if name not in words), FAILURES]

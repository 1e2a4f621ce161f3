"""Runs that belong together: those of a sweep's cell, which differ in their seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev

from ..run_reader import Points, Run, rows_of
from ..summary import figures_by_whose, rounds_reached, seeds_told
from .tables import Table

SEED, STATUS, FOLDER = "seed", "status", "folder"


@dataclass(frozen=True)
class Group:
    """Runs of one cell, and what the cell is, by key."""

    names: Mapping[str, str]
    runs: Sequence[Run]

    @property
    def label(self) -> str:
        """For a legend: ``fedyogi fedbn server-lr=0.1``."""
        plain = ("strategy", "client", "objective", FOLDER)
        return " ".join(v if k in plain else f"{k}={v}" for k, v in self.names.items() if v)

    def values(self, by: str) -> dict[str, list[float]]:
        """A figure of the last round, of every run that has it, by whose it is."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            for whose, figures in figures_by_whose(run.summary).items() if run.summary else ():
                if figures.get(by) is not None:
                    found.setdefault(whose, []).append(float(figures[by]))
        return found

    @property
    def rounds(self) -> dict[str, list[float]]:
        """The rounds in which those runs that reached their target did, by whose figure."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            for whose, number in rounds_reached(run.summary).items():
                found.setdefault(whose, []).append(number)
        return found

    def lines(self, column: str) -> list[Points]:
        """A column of ``metrics.csv``, of every run that has it."""
        return [points for run in self.runs if (points := run.points(column))]


@dataclass(frozen=True)
class Sweep:
    """A sweep's folder."""

    folder: Path
    groups: Sequence[Group]
    common: Mapping[str, str]
    """What is alike in all cells, by key."""
    failed: Sequence[Sequence[str]]
    """The cells that went wrong: their names and seed, and what happened."""

    @classmethod
    def read(cls, folder: Path) -> "Sweep":
        """Read ``grid.csv`` and the runs that it names. The columns before the status are what is swept."""
        rows = list(rows_of(folder / "grid.csv"))
        columns = list(rows[0]) if rows else []
        keys = [key for key in columns[: columns.index(STATUS)] if key != SEED] if rows else []
        common = {key: rows[0][key] for key in keys if len({row[key] for row in rows}) == 1}
        varied = [key for key in keys if key not in common] or keys
        cells: dict[tuple[str, ...], list[Run]] = {}
        for row in rows:
            runs = cells.setdefault(tuple(row[key] for key in varied), [])
            if (folder / row[FOLDER] / "config.json").exists():
                runs.append(Run.read(folder / row[FOLDER]))
        groups = [Group(dict(zip(varied, cell, strict=True)), runs) for cell, runs in cells.items()]
        failed = [
            [" ".join([*(row[key] for key in varied), f"seed {row[SEED]}"]), row[STATUS]]
            for row in rows
            if row[STATUS] != "ok"
        ]
        return cls(folder, groups, {k: v for k, v in common.items() if k not in varied}, failed)

    @cached_property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]


def common_figure(groups: Sequence[Group]) -> str:
    """What the runs are compared by: what they all are, or else the loss."""
    told = {run.by for group in groups for run in group.runs}
    return told.pop() if len(told) == 1 else "loss"


def headline(groups: Sequence[Group], by: str) -> tuple[str, str]:
    """Whose figure stands for a run: the clients' mean over examples where they evaluate, else the global
    model's; and its column of ``metrics.csv``."""
    evaluated = any(group.lines(by) for group in groups)
    return ("mean over examples", by) if evaluated else ("global", f"global-{by}")


def best_rows(groups: Sequence[Group], by: str) -> list[int]:
    """The groups whose figure is the best, all of which are equal; none where only one has a figure."""
    whose, _ = headline(groups, by)
    found = {i: mean(values) for i, group in enumerate(groups) if (values := group.values(by).get(whose))}
    if len(found) < 2:
        return []
    best = (max if by == "accuracy" else min)(found.values())
    return [i for i, value in found.items() if value == best]


def figures_table(groups: Sequence[Group], by: str, links: Sequence[str] = ()) -> Table:
    """A row for each group: the figure, by whose it is, as mean ± sample standard deviation (n - 1) over its
    runs, and their seconds."""
    values = [group.values(by) for group in groups]
    reached = [group.rounds for group in groups]
    columns = list(dict.fromkeys(name for told in values for name in told))
    rounds = list(dict.fromkeys(name for told in reached for name in told))
    keys = list(dict.fromkeys(key for group in groups for key in group.names))
    rows = [
        [
            *(group.names.get(key, "") for key in keys),
            *(spread(told.get(name, []), by) for name in columns),
            *(_of_all(found.get(name, []), group) for name in rounds),
            spread([run.summary["seconds"] for run in group.runs if run.summary], "seconds"),
        ]
        for group, told, found in zip(groups, values, reached, strict=True)
    ]
    return Table([*keys, *columns, *rounds, "seconds"], rows, len(keys), links)


def _of_all(rounds: Sequence[float], group: Group) -> str:
    """Rounds of those runs that reached the target, and of how many they are, if not of all."""
    some = f" ({len(rounds)} of {len(group.runs)})" if 0 < len(rounds) < len(group.runs) else ""
    return f"{spread(rounds, 'rounds')}{some}"


def legend(groups: Sequence[Group], by: str) -> str:
    """What the figures of the table are."""
    unit = " in %" if by == "accuracy" else ""
    seeds = seeds_told([sum(run.summary is not None for run in group.runs) for group in groups])
    many = f", mean ± sample standard deviation (n - 1) over {seeds} seeds" if seeds else ""
    return f"{by.capitalize()}{unit}{many}."


def spread(values: Sequence[float], name: str) -> str:
    """Mean ± sample standard deviation, an accuracy in percent."""
    if not values:
        return ""
    factor, digits = {"accuracy": (100, 1), "seconds": (1, 1), "rounds": (1, 1)}.get(name, (1, 4))
    deviation = f" ± {factor * stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{factor * mean(values):.{digits}f}{deviation}"

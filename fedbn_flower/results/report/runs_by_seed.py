"""Group runs that differ only in their seed, such as those of a sweep's cell, and what is said of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Generic, TypeVar

from ... import annexes
from ...config.gone import in_new_keys
from ...config.run_config import RunConfig
from ...core.errors import not_allowed
from ...core.ground.columns import GLOBAL, POOLED
from ...core.stored import CONFIG, GRID, rows_of
from ...records.metrics import PERCENT, heading, percent
from ...records.summary import Summary
from ..rare_event import Candidate, led_together
from ..run_reader import Points, Run
from ..summary import (
    AGGREGATED,
    JAIN_OF_CLIENTS,
    LEFT_OUT,
    NON_METRICS,
    OVER_EXAMPLES,
    deciding_column,
    metrics_by_group,
    seeds_text,
    to_target,
)
from .tables import Table

if TYPE_CHECKING:
    from ..plotting.svg_figure import InlineFigure

SEED, STATUS, FOLDER, OK = "seed", "status", "folder", "ok"
ALGORITHMS = ("strategy", "client", "objective", FOLDER)
K = TypeVar("K")
MARK = " *"


@dataclass(frozen=True)
class Marks(Generic[K]):
    """Which cells of a table are marked, and why.

    Parameters
    ----------
    column : str
        The column whose cells are.
    alike : frozenset[K]
        The marked cells, those that cannot be told from the best. Empty if nothing is known.
    known : bool
        Whether the cells were tested.
    sentence : str
        The same in words.
    """

    column: str = ""
    alike: frozenset[K] = frozenset()
    known: bool = False
    sentence: str = ""

    @property
    def header(self) -> Sequence[str]:
        """The columns of what is `shown`."""
        return ()

    def shown(self, cell: K, metric: str) -> Sequence[str]:
        """Return what stands beside a cell, a text for each column."""
        return ()


NOTHING_TOLD: Marks[int] = Marks()


def label_of(names: Mapping[str, str]) -> str:
    """Return values by key as a label: ``fedyogi fedbn server-lr=0.1``."""
    found = [v if key in ALGORITHMS else f"{key}={v}" for key, v in names.items() if v]
    return " ".join(found or [f"no {key}" for key in names])


@dataclass(frozen=True)
class Group:
    """The runs of one cell, and the cell's values by key; those that failed only count for privacy."""

    names: Mapping[str, str]
    runs: Sequence[Run]
    failed: Sequence[Run] = ()

    @property
    def label(self) -> str:
        """The group's label in a legend: ``fedyogi fedbn server-lr=0.1``."""
        return label_of(self.names)

    def values(self, metric: str) -> dict[str, list[float]]:
        """Return a metric from the summaries of the runs that have it, by column of the table."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            for column, metrics in metrics_by_group(run.summary).items():
                if metrics.get(metric) is not None:
                    found.setdefault(column, []).append(float(metrics[metric]))
        return found

    @property
    def with_privacy(self) -> list[Run]:
        """The runs whose privacy counts: of those that failed, the ones that had a round."""
        return [*self.runs, *(run for run in self.failed if run.summary.rounds)]

    @property
    def to_target(self) -> dict[str, list[float]]:
        """What it took to reach the target, of the runs that did, by column of the table."""
        found: dict[str, list[float]] = {}
        for run in self.runs:
            for column, number in to_target(run.summary).items():
                found.setdefault(column, []).append(number)
        return found

    def lines(self, column: str, cost: str = "") -> list[Points]:
        """Return a column of ``metrics.csv`` of each run that has it, and has counted the cost."""
        runs = [run for run in self.runs if not cost or run.costs(cost)]
        return [points for run in runs if (points := run.points(column))]


def led_groups(groups: Sequence[Group]) -> list[Group]:
    """Return groups that are compared with each other, with their runs `led_together`."""
    led = iter(led_together([Candidate.of(run) for group in groups for run in group.runs]))
    return [replace(group, runs=[next(led) for _ in group.runs]) for group in groups]


@dataclass(frozen=True)
class Sweep:
    """A sweep's folder."""

    folder: Path
    as_read: Sequence[Group]
    """The groups of runs, which are not yet led by a rare event."""
    common: Mapping[str, str]
    """The values that all cells share, by key."""
    failed: Sequence[Sequence[str]]
    """The runs that failed: cell with seed, and the error."""

    @classmethod
    def read(cls, folder: Path, key: str = "folder") -> Sweep:
        """Read ``grid.csv`` and the runs in it. The columns before the status are the swept keys.

        What a run that failed had found by then is no result, as in ``grid.md``.

        Raises
        ------
        UserError
            When no run of it has ended, or one cannot be read; the message begins with the key.
        """
        if not (folder / GRID).exists():
            raise not_allowed(key, str(folder), f"a sweep of which a run has ended: it has no {GRID}")
        rows = [in_new_keys(row) for row in rows_of(folder / GRID)]
        columns = list(rows[0]) if rows else []
        keys = [key for key in columns[: columns.index(STATUS)] if key != SEED] if rows else []
        common = {key: rows[0][key] for key in keys if len({row[key] for row in rows}) == 1}
        varied = [key for key in keys if key not in common] or keys
        cells: dict[tuple[str, ...], tuple[list[Run], list[Run]]] = {}
        for row in rows:
            runs = cells.setdefault(tuple(row[key] for key in varied), ([], []))
            if (folder / row[FOLDER] / CONFIG).exists():
                runs[row[STATUS] != OK].append(Run.read(folder / row[FOLDER], key))
        groups = [Group(dict(zip(varied, cell, strict=True)), *runs) for cell, runs in cells.items()]
        failed = [
            [" ".join([*(row[key] for key in varied), f"seed {row[SEED]}"]), row[STATUS]]
            for row in rows
            if row[STATUS] != OK
        ]
        return cls(folder, groups, {k: v for k, v in common.items() if k not in varied}, failed)

    @cached_property
    def groups(self) -> list[Group]:
        """The groups as they are compared; see `led_groups`."""
        return led_groups(self.as_read)

    @cached_property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]


def common_metric(groups: Sequence[Group], asked: str = "") -> str:
    """Return the metric by which runs are compared, ``asked`` for or not.

    It is by default the first of their main metrics that all have, or the loss.

    Raises
    ------
    UserError
        When not all runs have the metric that is asked for.
    """
    runs = [run for group in groups for run in group.runs if run.summary]
    of_all = [{name for found in metrics_by_group(run.summary).values() for name in found} for run in runs]
    known = set.intersection(*of_all).difference(NON_METRICS) if of_all else set()
    if asked and asked not in known:
        raise not_allowed("metric", asked, f"one that all runs have: {', '.join(sorted(known))}")
    mains = [run.main_metric for group in groups for run in group.runs]
    return asked or next((name for name in mains if name in known or len({*mains}) == 1), "loss")


def headline(groups: Sequence[Group], metric: str) -> tuple[str, str]:
    """Return the column that represents a run, in the table and in ``metrics.csv``; see `deciding_column`."""
    runs = [run for group in groups for run in group.runs if run.summary.rounds]
    column = deciding_column([metrics_by_group(run.summary).keys() for run in runs])
    if not runs and any(group.lines(metric) for group in groups):  # none has ended
        column = OVER_EXAMPLES
    if column == LEFT_OUT:  # measured once, at the end
        return column, ""
    prefixes = {"pooled": POOLED, OVER_EXAMPLES: "", AGGREGATED: "", "global": GLOBAL}
    return column, prefixes[column] + metric


def metrics_table(
    groups: Sequence[Group],
    metric: str,
    links: Sequence[str] = (),
    told: Marks[int] = NOTHING_TOLD,
) -> Table:
    """Return a row per group: the metric's mean ± sample standard deviation (n - 1), and seconds.

    Groups are marked that cannot be ``told`` from the best, and a sentence stands below the table. The
    column that was compared is the first, with the differences beside it.
    """
    values = [group.values(metric) for group in groups]
    reached = [group.to_target for group in groups]
    columns = dict.fromkeys(name for found in values for name in found)
    first = [told.column] if told.column in columns else []
    others = [name for name in columns if name not in first]
    costs = list(dict.fromkeys(name for found in reached for name in found))
    keys = list(dict.fromkeys(key for group in groups for key in group.names))
    rows = [
        [
            *(group.names.get(key, "") for key in keys),
            *(spread(means.get(name, []), metric) + MARK * (number in told.alike) for name in first),
            *told.shown(number, metric),
            *(
                spread(means.get(name, []), JAIN_OF_CLIENTS if name == JAIN_OF_CLIENTS else metric)
                for name in others
            ),
            *(_target_cell(targets.get(name, []), group) for name in costs),
            spread([run.summary.seconds for run in group.runs if run.summary.rounds], "seconds"),
        ]
        for number, (group, means, targets) in enumerate(zip(groups, values, reached, strict=True))
    ]
    header = [*keys, *first, *told.header, *others, *costs, "seconds"]
    return Table(header, rows, len(keys), links, note=told.sentence)


def _target_cell(took: Sequence[float], group: Group) -> str:
    """Return what it took to reach the target and, if not all runs reached it, how many did."""
    some = f" ({len(took)} of {len(group.runs)})" if 0 < len(took) < len(group.runs) else ""
    return f"{spread(took, 'rounds')}{some}"


def legend(groups: Sequence[Group], metric: str) -> str:
    """Return the sentence that explains the values of the table."""
    unit = " in %" if metric in PERCENT else ""
    seeds = seeds_text([sum(bool(run.summary.rounds) for run in group.runs) for group in groups])
    deviation = f", mean ± sample standard deviation (n - 1) over {seeds} seeds" if seeds else ""
    return f"{heading(metric)}{unit}{deviation}."


def spread(values: Sequence[float], name: str) -> str:
    """Return mean ± sample standard deviation as text, some metrics in percent."""
    if not values:
        return ""
    factor, digits = percent(name), 1 if name in PERCENT or name in ("seconds", "rounds") else 4
    deviation = f" ± {factor * stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{factor * mean(values):.{digits}f}{deviation}"


class Verdicts:
    """What is said of a sweep; of a kind ``verdicts`` an annex brings another such class.

    Parameters
    ----------
    folder : Path
        The sweep's folder.
    keys : Sequence[str]
        The swept keys besides strategy, client, objective and seed.
    """

    columns: Sequence[str] = ()
    """Further columns of ``grid.csv``."""

    def __init__(self, folder: Path, keys: Sequence[str] = ()) -> None:
        self.folder = folder
        self.keys = keys

    def add(self, config: RunConfig, folder: Path, summary: Summary) -> None:
        """Take a run that has ended, with its folder."""

    def compare(
        self, groups: Sequence[Group], metric: str, datasets: Collection[str], at_end: bool = True
    ) -> Marks[int]:
        """Compare the complete runs of all rows, of such ``datasets``; what takes longer, ``at_end``."""
        return Marks()

    def values(self, number: int) -> dict[str, object]:
        """Return what `columns` say of a row that was compared."""
        return {}

    def tables(self, at_end: bool = True) -> Mapping[str, Table]:
        """Return what follows the table of rows that were compared, by title."""
        return {}

    def write(self) -> None:
        """Write further files into the folder, once all runs have ended."""

    def sections(self, sweep: Sweep, metric: str) -> tuple[Sequence[str], Sequence[Table]]:
        """Return sections of a sweep's page as HTML, and their tables for a paper, of rows compared."""
        return (), ()

    @staticmethod
    def figure(groups: Sequence[Group], metric: str, title: str) -> InlineFigure | None:
        """Return what is drawn of runs that have no curve by round, such as those that leave out a site."""
        return None


def verdicts() -> type[Verdicts]:
    """Return the class of an annex that is present, or else the one that says nothing."""
    return next(iter(annexes.brought("verdicts").values()), Verdicts)

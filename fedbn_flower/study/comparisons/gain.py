"""What each client gains by training with the others, by the same runs with ``reference alone``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import mean

from ...records.cases import SITE, TARGET, is_binary, predictions_of
from ...records.metrics import heading, percent, spelt
from ...results.report.html import gallery, paragraph
from ...results.report.runs_by_seed import Group
from ...results.report.tables import Table
from ...results.run_reader import Run
from ..figures import gain_plot
from ..intervals import cost, with_numbered_classes
from ..statistics.intervals import LEVEL
from ..statistics.paired import paired_bootstrap
from ..statistics.subgroups import Subgroup, WorseOff, bonferroni, worse_off
from .best_cells import metric_of_cases
from .over_blocks import without_value

ALONE = "alone"
GAIN_FILE = "gain.csv"
COMPARED = ("seed", "data", "partition", "num-clients", "val-fraction", "eval-data", "fold", "left-out")
"""What two runs have in common whose clients have the same cases."""
MOST = 60
"""How many clients of a group of runs have intervals; of more it takes too long."""
Ends = tuple[float, float]


@dataclass(frozen=True)
class OfClient:
    """A client's metric alone and with the others, and what it gains: more than 0 if that is better."""

    seed: object
    client: str
    alone: float
    together: float
    gain: float
    ends: Ends | None
    """The interval of the gain, one of all clients together; None where the cases are too few or unknown."""


@dataclass(frozen=True)
class Gain:
    """What the clients of a group of runs gain over training alone."""

    group: str
    metric: str
    clients: Sequence[OfClient]
    without: Sequence[str] = ()
    """The clients that under no seed have the metric, such as an AUROC of one class, alone and together."""

    @property
    def worse_off(self) -> WorseOff:
        """How many clients lose."""
        return worse_off([one.gain for one in self.clients], [one.ends for one in self.clients])

    @property
    def has_intervals(self) -> bool:
        """Whether any client has one."""
        return any(one.ends for one in self.clients)

    @property
    def mean(self) -> float:
        """The mean gain over the clients."""
        return mean(one.gain for one in self.clients)

    @property
    def least(self) -> OfClient:
        """The client that gains least."""
        return min(self.clients, key=lambda one: one.gain)


def gains_of(groups: Sequence[Group], metric: str) -> list[Gain]:
    """Return the gain of each group of runs over the one whose clients train alone; none without such a one.

    Runs are paired by seed and data. Of several groups that train alone, a group is paired with the one with
    which it has most keys in common.

    Parameters
    ----------
    groups : Sequence[Group]
        The groups.
    metric : str
        The metric; see `common_metric`.
    """
    alone = [group for group in groups if group.runs and all(map(_is_alone, group.runs))]
    others = [group for group in groups if group.runs and group not in alone]
    if not alone:
        return []
    gains = (
        Gain(one.label, metric, found := _clients(pairs, metric), _without(pairs, found))
        for one in others
        for pairs in [_pairs(one, _partner(one, alone))]
    )
    return [gain for gain in gains if gain.clients]


def _without(pairs: Sequence[tuple[Run, Run]], found: Sequence[OfClient]) -> list[str]:
    """Return the clients that have a gain in no pair of runs."""
    clients = (pair for run, _ in pairs for pair in run.summary.clients.items())
    names = dict.fromkeys(str(of.get("name", i)) for i, of in clients)
    return [name for name in names if name not in {one.client for one in found}]


def _is_alone(run: Run) -> bool:
    return run.config.get("reference") == ALONE


def _partner(group: Group, alone: Sequence[Group]) -> Group:
    return max(alone, key=lambda other: sum(other.names.get(k) == v for k, v in group.names.items()))


def _pairs(group: Group, alone: Group) -> list[tuple[Run, Run]]:
    return [(run, other) for run in group.runs for other in alone.runs if _key(run) == _key(other)]


def _clients(pairs: Sequence[tuple[Run, Run]], metric: str) -> list[OfClient]:
    number = sum(len(_values(run, metric).keys() & _values(other, metric).keys()) for run, other in pairs)
    level = bonferroni(LEVEL, number)
    return [one for pair in pairs for one in _of_pair(*pair, metric, level if number <= MOST else None)]


def _key(run: Run) -> tuple[object, ...]:
    return tuple(str(run.config.get(key, "")) for key in COMPARED)


def _values(run: Run, metric: str) -> dict[str, float]:
    """Return a metric by client: by its name if the data have names, else its number."""
    clients = run.summary.clients.items()
    return {str(of.get("name", i)): float(of[metric]) for i, of in clients if of.get(metric) is not None}


def _of_pair(run: Run, other: Run, metric: str, level: float | None) -> Iterator[OfClient]:
    """Yield the clients that both runs have."""
    together, alone = _values(run, metric), _values(other, metric)
    sign = 1 if run.higher_is_better(metric) else -1
    of_clients = _ends(run, other, metric, level) if level else {}
    for client in (name for name in together if name in alone):
        ends = of_clients.get(client)
        if ends and sign < 0:
            ends = -ends[1], -ends[0]
        gain = sign * (together[client] - alone[client])
        yield OfClient(run.config.get("seed"), client, alone[client], together[client], gain, ends)


def _ends(run: Run, other: Run, name: str, level: float) -> dict[str, Ends]:
    """Return the ends of the difference of each client that has enough cases, by the paired bootstrap.

    There are none if a run has not kept its predictions, or they do not give its clients' values.
    """
    tables = [predictions_of(one.folder, TARGET) for one in (run, other)]
    tables = [table if table is None else with_numbered_classes(table) for table in tables]
    sites = [{str(site): of for site, of in t.groupby(SITE)} for t in tables if t is not None]
    values = [_values(one, name) for one in (run, other)]
    if len(sites) < 2 or not all(values) or values[0].keys() - sites[0] or values[1].keys() - sites[1]:
        return {}
    parts = [sites[i][client] for i in (0, 1) for client in values[i]]
    metric = metric_of_cases(parts, run.config, name, [*values[0].values(), *values[1].values()])
    if metric is None or cost(metric) > 1:
        return {}
    found, binary = {}, is_binary(tables[0])
    for client in (client for client in values[0] if client in values[1]):
        cases = sites[0][client]
        events = int((cases[TARGET] == 1).sum()) if binary else None
        if Subgroup(client, len(cases), events).is_large_enough:
            with suppress(ValueError):  # of other cases
                seed = int(run.config.get("seed", 0))
                difference = paired_bootstrap(cases, sites[1][client], metric, seed, level=level)
                found[client] = difference.low, difference.high
    return found


def gain_rows(gains: Sequence[Gain]) -> list[dict[str, object]]:
    """Return the rows of ``gain.csv``: one for each group, seed and client."""
    return [
        {
            **{"run": gain.group, "seed": one.seed, "client": one.client, "metric": gain.metric},
            **{"alone": one.alone, "together": one.together, "gain": one.gain},
            **dict(zip(("gain-low", "gain-high"), one.ends or ("", ""), strict=True)),
        }
        for gain in gains
        for one in gain.clients
    ]


MOST_DRAWN = 9  # markers
HEADER = ("clients", "worse off than alone", "at 95 %", "mean gain", "least gain")
WORDS = (
    "A client is worse off if its {metric} is worse than that of the model that it trains alone, on the same "
    "held-out cases; a gain is more than 0 if training together is better. At 95 %: how many clients may "
    "truly be worse off, by a paired bootstrap of each client's cases, Bonferroni over clients and seeds."
)
WITHOUT = " Without held-out cases that both runs have kept, and enough of them, it is not known how many."


def gain_table(gains: Sequence[Gain]) -> Table:
    """Return a row for each group of runs."""
    rows = []
    for gain in gains:
        found = gain.worse_off
        rows.append(
            [
                gain.group,
                str(found.clients),
                f"{found.worse} ({100 * found.worse / found.clients:.0f} %)",
                f"{found.least} to {found.most}" if gain.has_intervals else "not known",
                _points(gain.metric, gain.mean),
                f"{_points(gain.metric, gain.least.gain)} ({_named(gain, gain.least)})",
            ]
        )
    metric = spelt(gains[0].metric) if gains else ""
    lacking = "" if all(gain.has_intervals for gain in gains) else WITHOUT
    named = {one.client for gain in gains for one in gain.clients}
    without = list(dict.fromkeys(name for gain in gains for name in gain.without if name not in named))
    lacking += without_value(without, gains[0].metric) if gains else ""
    return Table(["together", *HEADER], rows, note=WORDS.format(metric=metric) + lacking)


def gain_section(gains: Sequence[Gain]) -> Iterator[str]:
    """Yield the table and the scatter, if any run has clients that also trained alone."""
    if not gains:
        return
    table = gain_table(gains)
    yield table.html()
    yield paragraph(table.note, "note")
    points = {gain.group: [(one.alone, one.together) for one in gain.clients] for gain in gains[:MOST_DRAWN]}
    metric = gains[0].metric
    yield gallery({f"{heading(metric)} of each client, alone and with the others": gain_plot(points, metric)})


def _points(metric: str, value: float) -> str:
    return f"{100 * value:+.1f} points" if percent(metric) == 100 else f"{value:+.4g}"


def _named(gain: Gain, one: OfClient) -> str:
    seeds = {other.seed for other in gain.clients}
    return f"client {one.client}, seed {one.seed}" if len(seeds) > 1 else f"client {one.client}"

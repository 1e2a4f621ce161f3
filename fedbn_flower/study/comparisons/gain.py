"""What each client gains by training with the others, by the same runs with ``reference alone``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING, Any

from fedbn_flower.clients.problems.metrics.scores import thresholds

from ...records.cases import SITE, TARGET, is_binary, predictions_of
from ...results.report.runs_by_seed import Group
from ...results.run_reader import Run
from ..intervals import OWN, same_value
from ..statistics.case_metrics import METRICS, Auroc, CaseMetric
from ..statistics.cases import Cases
from ..statistics.fairness import WorseOff, bonferroni, worse_off
from ..statistics.intervals import LEVEL
from ..statistics.paired import paired_bootstrap
from ..statistics.subgroups import Subgroup

if TYPE_CHECKING:
    from pandas import DataFrame

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
    found = (Gain(one.label, metric, _clients(one, _partner(one, alone), metric)) for one in others)
    return [gain for gain in found if gain.clients]


def _is_alone(run: Run) -> bool:
    return run.config.get("reference") == ALONE


def _partner(group: Group, alone: Sequence[Group]) -> Group:
    return max(alone, key=lambda other: sum(other.names.get(k) == v for k, v in group.names.items()))


def _clients(group: Group, alone: Group, metric: str) -> list[OfClient]:
    pairs = [(run, other) for run in group.runs for other in alone.runs if _key(run) == _key(other)]
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
    found = _Paired.of(run, other, metric) if level else None
    for client in (name for name in together if name in alone):
        ends = found.ends(client, level) if found and level else None
        if ends and sign < 0:
            ends = -ends[1], -ends[0]
        gain = sign * (together[client] - alone[client])
        yield OfClient(run.config.get("seed"), client, alone[client], together[client], gain, ends)


@dataclass(frozen=True)
class _Paired:
    """The cases of two runs by site, with a metric that has the values of both."""

    together: Mapping[str, DataFrame]
    alone: Mapping[str, DataFrame]
    metric: CaseMetric
    binary: bool
    seed: int

    @classmethod
    def of(cls, run: Run, other: Run, name: str) -> _Paired | None:
        """Return them; None if a run has not kept its predictions, or no metric has its values."""
        one, two = (predictions_of(of.folder, TARGET) for of in (run, other))
        if one is None or two is None:
            return None
        parts = [{str(site): part for site, part in table.groupby(SITE)} for table in (one, two)]
        values = [_values(of, name) for of in (run, other)]
        for metric in _candidates(name, run.config):
            if all(_has_values(metric, *pair) for pair in zip(parts, values, strict=True)):
                return cls(
                    parts[0],
                    parts[1],
                    metric,
                    is_binary(one),
                    int(run.config.get("seed", 0)),
                )
        return None

    def ends(self, client: str, level: float) -> Ends | None:
        """Return the ends of the difference of a client, by the paired bootstrap."""
        cases = self.together[client]
        events = int((cases[TARGET] == 1).sum()) if self.binary else None
        if not Subgroup(client, len(cases), events).is_large_enough:
            return None
        try:
            found = paired_bootstrap(cases, self.alone[client], self.metric, self.seed, level=level)
        except ValueError:  # of other cases
            return None
        return found.low, found.high


def _candidates(name: str, config: Mapping[str, Any]) -> Iterator[CaseMetric]:
    """Yield what a metric may be of single cases; which it is, its values say."""
    if name in METRICS:
        yield METRICS[name]
    yield from (of[name] for of in OWN.values() if name in of)
    if name == "auroc":
        yield Auroc(thresholds(int(config.get("thresholds", 1000))).numpy())


def _has_values(metric: CaseMetric, parts: Mapping[str, DataFrame], values: Mapping[str, float]) -> bool:
    try:
        found = {client: metric.value(Cases.of(parts[client])) for client in values}
        return all(same_value(found[client], value) for client, value in values.items())
    except (KeyError, IndexError, ValueError):  # a client without cases; targets or scores of another kind
        return False


def gain_rows(gains: Sequence[Gain]) -> list[dict[str, object]]:
    """Return the rows of ``gain.csv``: one for each group, seed and client."""
    return [
        {
            "run": gain.group,
            "seed": one.seed,
            "client": one.client,
            "metric": gain.metric,
            "alone": one.alone,
            "together": one.together,
            "gain": one.gain,
            "gain-low": one.ends[0] if one.ends else "",
            "gain-high": one.ends[1] if one.ends else "",
        }
        for gain in gains
        for one in gain.clients
    ]

"""Intervals of a run's metrics in ``summary.json``: those of its held-out cases, computed once at the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients import Predicted, Problem
from fedbn_flower.clients.problems.metrics.base import CLASSES, NUMBERS, Metric
from fedbn_flower.clients.problems.metrics.scores import BINS, OfScores, SensitivityAt, thresholds
from fedbn_flower.clients.problems.metrics.scores import Auroc as AurocOfRun
from fedbn_flower.clients.problems.surfaces import HD95

from ..core.files import json_text, write_atomically
from ..core.ground.columns import RECALIBRATED, HeldOut
from ..core.stored import json_object
from ..core.text import listed
from ..records.cases import OF_CLASS, SCORE, SITE, TARGET, is_binary, predictions_of
from ..records.summary import CALIBRATION, NOTE
from ..results.rare_event import AUROC, SENSITIVITY, SPECIFICITY, is_rare
from .recalibration import with_recalibrated
from .statistics.case_metrics import METRICS, Auroc, CaseMetric, Mean, OfCurve, OfStates
from .statistics.cases import Cases
from .statistics.intervals import Interval, calibration_test, has_shared_cases, intervals_of_cases

if TYPE_CHECKING:
    from pandas import DataFrame

INTERVALS, BY_CASE, NEW_CLIENTS = "intervals", "by-case", HeldOut.SITE.column
"""Keys in ``summary.json``."""
MOST = 200_000
"""How many cases times metrics have intervals, some seconds' work: cases count once for their client and once
pooled, a client as so many more of them as `FOR_A_CLIENT`, and a metric as `cost` says."""
FOR_A_CLIENT = 50
STATE, NUMBERS_A_STATE = 4, 200
"""A metric by states counts so often, and once more for so many numbers of a case's state."""
ROUNDING = {"rel_tol": 1e-5, "abs_tol": 1e-6}
"""By how much a metric of the cases may differ from the run's, whose sums are of float32."""
NOTHING: Mapping[str, CaseMetric] = {}
SHARED = "All clients have the same cases, so only each client by itself has intervals."


def _cross_entropies(cases: Cases) -> NDArray:
    rows = np.arange(len(cases))
    scores = cases.scores if cases.scores.ndim == 2 else np.stack([1 - cases.scores, cases.scores], axis=1)
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(scores[rows, cases.targets]))


def _errors(cases: Cases) -> NDArray:
    return np.asarray(np.abs(cases.scores - cases.targets))


SHARE, LENGTH = (0.0, 1.0), (0.0, math.inf)
"""Bounds of a metric."""
MOST_NAMED = 10
OWN: dict[str, dict[str, CaseMetric]] = {
    CLASSES: {"accuracy": METRICS["accuracy"], "loss": Mean(_cross_entropies, None, LENGTH, of_classes=True)},
    NUMBERS: {
        "loss": Mean(lambda cases: _errors(cases) ** 2, bounds=LENGTH),
        "mae": Mean(_errors, bounds=LENGTH),
    },
}
"""What the metrics that a problem has by itself usually are, by kind of prediction and name."""


def write_intervals(folder: Path, problem: Problem, seed: int) -> None:
    """Add the intervals to a run's ``summary.json``, if the run has a table of its held-out cases.

    Those of recalibrated scores, and of clients that did not train, are beside their metrics. Of masks, the
    metrics of single cases are added too.
    """
    path = folder / "summary.json"
    if not path.exists():
        return
    column = problem.case_metrics[0] if problem.case_metrics else TARGET
    summary = json_object(path)
    cases = predictions_of(folder, column)
    of_new = predictions_of(folder, column, new=True) if summary.get(NEW_CLIENTS) else None
    recalibrated = None if cases is None else with_recalibrated(cases)
    parts = (cases, summary), (recalibrated, summary.get(RECALIBRATED)), (of_new, summary.get(NEW_CLIENTS))
    found = [(table, part) for table, part in parts if table is not None and part]
    for table, part in found:
        if problem.case_metrics:
            part[BY_CASE], part[INTERVALS] = by_case(table, problem, seed)
        else:
            further = of_rare_event(table, part) if part is summary else {}
            part[INTERVALS] = intervals_of(table, part, problem, seed, further)
    if found:
        write_atomically(path, json_text(summary, indent=2) + "\n")


def by_case(table: DataFrame, problem: Problem, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the means of the metrics of single masks, and their 95 % intervals.

    See `means_of_cases`, and for the intervals `intervals_of`. The means also have the ``unit`` and the
    ``tolerance`` of distances.
    """
    bounds = {column: LENGTH if column.startswith(HD95) else SHARE for column in case_columns(table, problem)}
    found = means_of_cases(table, bounds, seed)
    groups = {key: found[key] for key in ("pooled", "mean", "clients")}
    shared: dict[str, Any] = {"pooled": {}, "mean": {}} if has_shared_cases(table) else {}
    notes = [SHARED] * bool(shared) + too_few(groups)
    ends = {**_as_json(groups), **shared, **({NOTE: " ".join(notes)} if notes else {})}
    unit = "mm" if problem.spacing else "pixels"
    return {"unit": unit, "tolerance": problem.tolerance, **found, **_values(groups)}, ends


def means_of_cases(table: DataFrame, bounds: Mapping[str, tuple[float, float]], seed: int) -> dict[str, Any]:
    """Return the mean of each column: ``pooled`` (all cases), ``mean`` (over sites), ``clients`` (by site).

    A case without a number, NaN, counts in no mean of that column: ``left-out`` has how many these are, by
    site and column; ``cases`` has how many cases each site has. Where several sites have the same cases,
    these are not independent: only each site by itself has intervals.

    Parameters
    ----------
    table : DataFrame
        A row for each case: ``site``, ``id``, perhaps ``group``, and the columns.
    bounds : Mapping
        The least and the greatest value of each column, by its name.
    seed : int
        Of the draws.
    """
    shared = has_shared_cases(table)
    sites = {str(site): part for site, part in table.groupby(SITE, sort=False)}
    found: dict[str, Any] = {"pooled": {}, "mean": {}, "clients": {site: {} for site in sites}}
    for name, ends in bounds.items():
        if table[name].isna().all():
            continue
        of_one = _of_each_alone(table, name, ends, seed) if shared else _of_all(table, name, ends, seed)
        found["pooled"][name], found["mean"][name] = of_one["pooled"], of_one["mean"]
        for site, interval in of_one["clients"].items():
            found["clients"][site][name] = interval
    missing = {site: part[[*bounds]].isna().sum() for site, part in sites.items()}
    return {
        "cases": {site: len(part) for site, part in sites.items()},
        "left-out": {
            site: {str(name): int(count) for name, count in counts.items() if count}
            for site, counts in missing.items()
            if counts.any()
        },
        **found,
    }


def _of_all(table: DataFrame, name: str, bounds: tuple[float, float], seed: int) -> dict[str, Any]:
    metric = Mean(lambda cases: cases.scores, bounds=bounds)
    found: dict[str, Any] = intervals_of_cases(Cases.of_values(table, name), {name: metric}, seed)
    clients = {site: of[name] for site, of in found["clients"].items()}
    return {"pooled": found["pooled"][name], "mean": found["mean"][name], "clients": clients}


def _of_each_alone(table: DataFrame, name: str, bounds: tuple[float, float], seed: int) -> dict[str, Any]:
    """Return the intervals of each site by itself; the others are values only."""
    parts = [part for _, part in table.groupby(SITE, sort=False) if part[name].notna().any()]
    clients = {s: of for part in parts for s, of in _of_all(part, name, bounds, seed)["clients"].items()}
    values = {
        "pooled": float(table[name].mean()),
        "mean": sum(of.value for of in clients.values()) / len(clients),
    }
    return {**{k: Interval(v, math.nan, math.nan, "") for k, v in values.items()}, "clients": clients}


def case_columns(table: DataFrame, problem: Problem) -> list[str]:
    """Return the columns of the metrics of single cases, those of classes too."""
    kinds = problem.case_metrics
    return [c for c in table.columns if any(c == kind or c.startswith(f"{kind}-") for kind in kinds)]


def _values(found: Any) -> Any:
    if isinstance(found, Interval):
        return found.value
    return {key: _values(value) for key, value in found.items()}


def of_rare_event(table: DataFrame, summary: Mapping[str, Any]) -> dict[str, CaseMetric]:
    """Return the metrics that lead the tables of a rare event, but those that the run has itself.

    Expected over observed events is not among them: its intervals were not measured.
    """
    if not is_binary(table) or not is_rare(table) or has_shared_cases(table):
        return {}
    found = {AUROC: Auroc(), SENSITIVITY: OfCurve(SensitivityAt(Predicted(CLASSES, 2), SPECIFICITY))}
    own = summary.get("pooled") or summary.get("mean") or {}
    left = MOST / _size(len(table), table[SITE].nunique(), shared=False)
    return {name: metric for name, metric in found.items() if name not in own and cost(metric) <= left}


def intervals_of(
    table: DataFrame,
    summary: Mapping[str, Any],
    problem: Problem,
    seed: int,
    further: Mapping[str, CaseMetric] = NOTHING,
) -> dict[str, Any]:
    """Return the 95 % intervals of a run's metrics, ``[low, high]``, None where there is no bound.

    ``pooled`` is of all cases in one place, ``mean`` of the mean over clients, ``clients`` of each client, by
    its name, or its number. Where several clients have the same cases, these are not independent, and the
    first two are empty.

    Parameters
    ----------
    table : DataFrame
        ``predictions.parquet``.
    summary : Mapping
        ``summary.json``, whose values the metrics of the cases must have: one that has another is left out,
        such as the loss of a criterion of one's own.
    problem : Problem
        The run's, with its metrics.
    seed : int
        Of the draws.
    further : Mapping[str, CaseMetric]
        Metrics besides those of the summary, by name.
    """
    found = measured(table, summary, problem)
    if found is None:
        return {"pooled": {}, "mean": {}, "clients": {}}
    notes, cases, too_long = [SHARED] if found.shared else [], found.cases, found.too_long
    if too_long:
        notes.append(f"No intervals of {', '.join(too_long)}: with {len(cases):,} cases they take too long.")
    all_of = _of_each_client if found.shared else intervals_of_cases
    ends = all_of(cases, {n: m for n, m in found.metrics.items() if m.has_interval} | dict(further), seed)
    notes += too_few(ends)
    tested = any(not metric.has_interval for metric in found.metrics.values())
    return {
        **_as_json(ends),
        **({CALIBRATION: _calibration(cases, found.shared, seed)} if tested else {}),
        **({NOTE: " ".join(notes)} if notes else {}),
    }


def _calibration(cases: Cases, shared: bool, seed: int) -> dict[str, Any]:
    """Return the test of calibration of all cases, and of each client's."""
    clients = {of.sites[0]: calibration_test(of, BINS, seed)._asdict() for of in cases}
    pooled = {} if shared else {"pooled": calibration_test(cases, BINS, seed)._asdict()}
    return {**pooled, "clients": clients}


def too_few(found: Mapping[str, Any]) -> list[str]:
    """Return sentences that say which metrics have too few events, or cases, for an interval, and where."""
    of_all = {"all sites pooled": found["pooled"], "mean over sites": found["mean"], **found["clients"]}
    metrics: dict[tuple[str, str], list[str]] = {}
    for site, intervals in of_all.items():
        for name, one in intervals.items():
            if math.isnan(one.low) and one.method:
                metrics.setdefault((one.method, site), []).append(name)
    sites: dict[tuple[str, str], list[str]] = {}
    for (why, site), names in metrics.items():
        sites.setdefault((why, listed(names, MOST_NAMED)), []).append(site)
    return [f"{why}: {names}; {listed(where, MOST_NAMED)}." for (why, names), where in sites.items()]


class Measured(NamedTuple):
    """The cases of a run, as `Cases.of` takes them and as it returns them, and their metrics."""

    table: DataFrame
    cases: Cases
    metrics: Mapping[str, CaseMetric]
    """Those that have the values of the run."""
    shared: bool
    """Whether several clients have the same cases."""
    too_long: Sequence[str]
    """The names of those whose intervals take too long."""


def measured(table: DataFrame, summary: Mapping[str, Any], problem: Problem) -> Measured | None:
    """Return a run's cases with their metrics; None where cases have several targets."""
    table = with_numbered_classes(table)
    if table is None:
        return None
    cases, shared = Cases.of(table), has_shared_cases(table)
    chosen, too_long = _affordable(cases, problem, _Expected(summary, shared), shared)
    return Measured(table, cases, chosen, shared, too_long)


def with_numbered_classes(table: DataFrame) -> DataFrame | None:
    """Return a table whose columns of scores have the numbers of classes, as its targets are.

    None where cases have several targets.
    """
    names = [name for name in table.columns if name.startswith(OF_CLASS)]
    if not names and SCORE not in table.columns:
        return None
    return table.rename(columns={name: f"{OF_CLASS}{number}" for number, name in enumerate(names)})


def without_intervals(found: Measured, summary: Mapping[str, Any], problem: Problem) -> dict[str, CaseMetric]:
    """Return those of the metrics whose intervals take too long that are themselves quickly computed."""
    expected = _Expected(summary, found.shared)
    biased = {name: metric for name, metric in found.metrics.items() if not metric.has_interval}
    every = {name: candidates(name, problem.predicts, problem.chosen.get(name)) for name in found.too_long}
    quick = {name: [one for one in some if not isinstance(one, OfStates)] for name, some in every.items()}
    return biased | {
        name: metric
        for name, several in quick.items()
        for metric in several
        if expected.has(name, metric, found.cases)
    }


def _of_each_client(cases: Cases, metrics: Mapping[str, CaseMetric], seed: int) -> dict[str, Any]:
    found = [intervals_of_cases(site, metrics, seed)["clients"] for site in cases]
    return {"pooled": {}, "mean": {}, "clients": {site: of for one in found for site, of in one.items()}}


def _affordable(
    cases: Cases, problem: Problem, expected: _Expected, shared: bool
) -> tuple[dict[str, CaseMetric], list[str]]:
    """Return the metrics that have the values of the run, and the names of those that take too long."""
    each = _size(len(cases), len(cases.sites), shared)
    found = {
        name: list(candidates(name, problem.predicts, problem.chosen.get(name))) for name in _names(problem)
    }
    order = sorted(
        (name for name, some in found.items() if some),
        key=lambda name: (cost(found[name][0]), name != problem.compared_by),
    )
    chosen: dict[str, CaseMetric] = {}
    too_long, left = [], MOST / each
    for name in order:
        for metric in found[name]:
            if cost(metric) > left:
                too_long.append(name)
                break
            if expected.has(name, metric, cases):
                chosen[name] = metric
                left -= cost(metric)
                break
    return {name: chosen[name] for name in found if name in chosen}, too_long


def _size(cases: int, sites: int, shared: bool) -> int:
    """Return how many cases are worked on for a metric, as `MOST` counts them."""
    return cases * (1 if shared or sites == 1 else 2) + FOR_A_CLIENT * sites


def cost(metric: CaseMetric) -> float:
    """Return how long a metric of weighted cases takes, by what a mean takes."""
    if isinstance(metric, OfCurve):
        return STATE
    if not isinstance(metric, OfStates):
        return 1
    return STATE + np.asarray(metric.metric.zeros()).size / NUMBERS_A_STATE


def _names(problem: Problem) -> list[str]:
    """Return the metrics but those of single classes."""
    return [name for name in problem.metrics if name in problem.chosen or name not in problem.further]


def candidates(name: str, predicts: str, metric: Metric | None) -> Iterator[CaseMetric]:
    """Yield what a metric may be of single cases; which it is, its value says.

    Parameters
    ----------
    name : str
        The metric's.
    predicts : str
        What the problem predicts: `CLASSES`, `NUMBERS` or anything else.
    metric : Metric, optional
        The metric, if it is none that the problem has by itself.
    """
    if metric is None:
        yield from (own for key, own in OWN.get(predicts, {}).items() if key == name)
        return
    if isinstance(metric, AurocOfRun):
        yield from (Auroc(), Auroc(thresholds(metric.predicted.thresholds).numpy()))
    elif isinstance(metric, OfScores):
        yield OfCurve(metric)
    elif name in METRICS:
        yield METRICS[name]
    yield OfStates(metric)


class _Expected:
    """What ``summary.json`` says of metrics.

    Parameters
    ----------
    summary : Mapping
        Its content.
    shared : bool
        Whether several clients have the same cases, so that nothing is said of all cases together.
    """

    def __init__(self, summary: Mapping[str, Any], shared: bool) -> None:
        own = summary.get("mean") or {}  # of sums over examples, so that of all examples in one place
        self.pooled: Mapping[str, Any] = {} if shared else (summary.get("pooled") or own)
        self.clients = {c.get("name", i): c for i, c in summary.get("clients", {}).items()}

    def has(self, name: str, metric: CaseMetric, cases: Cases) -> bool:
        """Whether the metric has the values that the summary has by this name."""
        if self.pooled and not same_value(metric.value(cases), self.pooled.get(name)):
            return False
        known = [site for site in cases if site.sites[0] in self.clients]
        return bool(known) and all(
            same_value(metric.value(site), self.clients[site.sites[0]].get(name)) for site in known
        )


def same_value(found: float, expected: float | None) -> bool:
    """Return whether a metric of the cases is the run's, but for rounding; None is that of no value."""
    if expected is None or math.isnan(found):
        return expected is None and math.isnan(found)
    return math.isclose(found, expected, **ROUNDING)


def _as_json(found: Any) -> Any:
    if isinstance(found, Interval):
        return [None if math.isnan(end) else end for end in (found.low, found.high)]
    return {key: _as_json(value) for key, value in found.items()}

"""The out-of-fold results of cross-validation: of all folds of a run together, by client and pooled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from flwr.app import MetricRecord

from fedbn_flower.clients import Problem
from fedbn_flower.clients.problems.metrics.base import CLASSES

from ...config.run_config import RunConfig
from ...core.files import csv_text, write_atomically
from ...core.ground.columns import TEST, HeldOut
from ...core.stored import rows_of
from ...job.inputs import inputs_of
from ...names import short
from ...records.cases import SCORE, SITE, TARGET, exact_metrics, is_binary, predictions_of
from ...records.metrics import POOLED, number, of_all_reports, shown, spelt, states_of
from ...records.summary import Summary
from ...results.held_out import EVENTS, events_column
from ...results.progress import values_of
from ...results.rare_event import AUROC, CALIBRATION, figures, is_rare
from ...results.report.runs_by_seed import MARK
from ...results.report.sections.intervals import with_interval
from ...results.report.tables import Table
from ...results.run_reader import Run
from ..intervals import intervals_of, of_rare_event
from ..statistics.paired import cannot_be_told_from_best, too_few_events
from .best_cells import NOT_TOLD, OnCases, Verdict, cases_of, compare_tables, on_cases, over_seeds

if TYPE_CHECKING:
    from pandas import DataFrame

AXES = ("strategy", "client", "objective")
OF, SEED, EXAMPLES, EVENT = "of", "seed", "examples", "event"
LOW, HIGH = " low", " high"
"""How columns of ``folds.csv`` end: the 95 % interval of a metric, over groups."""
WORDS = (
    "Out of fold: each example is tested on in one of the folds, and counts once. "
    "In brackets: 95 % intervals, over groups where examples have them."
)
ONE_DIVISION = "One division into folds says nothing of how other divisions and seeds vary."


class Folds(NamedTuple):
    """A run of which all folds are done: its seed, the pooled metric, and the run of each fold."""

    seed: object
    value: float | None
    runs: Sequence[Run]


def together(runs: Sequence[Run]) -> DataFrame | None:
    """Return the cases of all folds; None if not all keep them, or one is in two folds."""
    import pandas as pd

    tables = [cases_of(run) for run in runs]
    if any(table is None for table in tables):
        return None
    found = pd.concat(tables, ignore_index=True)
    return None if found.duplicated(["site", "id"]).any() else found


def told_out_of_fold(methods: Mapping[str, Sequence[Folds]], metric: str, higher: bool) -> Verdict[str]:
    """Return which methods cannot be told from the best on all out-of-fold cases, or over five seeds.

    Parameters
    ----------
    methods : Mapping[str, Sequence[Folds]]
        The seeds of each method.
    metric : str
        The metric that is compared.
    higher : bool
        Whether the highest value is the best.
    """
    labels = {name: name for name in methods}
    if len(methods) < 2 or any(folds.value is None for of in methods.values() for folds in of):
        return Verdict(POOLED)
    lacking = ""
    if all(len(of) == 1 for of in methods.values()):
        found = _on_cases([of[0] for of in methods.values()], metric)
        if found.tests:
            told = on_cases(POOLED, list(methods), found, labels, metric, higher, "out-of-fold")
            return Verdict(POOLED, told.alike, True, f"{told.sentence} {ONE_DIVISION}")
        lacking = f" Nor from the cases: {found.why_not}."
    seeds = list(dict.fromkeys(folds.seed for of in methods.values() for folds in of))
    values = {
        name: np.array([{f.seed: f.value for f in of}.get(seed, np.nan) for seed in seeds], np.float64)
        for name, of in methods.items()
    }
    best = cannot_be_told_from_best(values, higher)
    told = over_seeds(POOLED, best, labels, metric, str(len(seeds)), lacking, " out of fold")
    return replace(told, differences={})


def _on_cases(methods: Sequence[Folds], metric: str) -> OnCases:
    tables = [together(folds.runs) for folds in methods]
    found = [table for table in tables if table is not None]
    if len(found) < len(tables):
        return OnCases(None, why_not="not all folds keep their predictions")
    targets = found[0]["target"]
    if targets.dtype.kind == "i":
        counts = targets.value_counts()
        if few := too_few_events(int(counts.sum() - counts.max())):
            return OnCases(None, why_not=few)
    return compare_tables(found, methods[0].runs[0].config, metric, [folds.value for folds in methods])


def out_of_fold_table(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str], metric: str, told: Verdict[str]
) -> Table:
    """Return the rows of ``folds.csv`` as a table: examples, events, and the metric with its interval.

    Parameters
    ----------
    rows : Sequence[Mapping[str, Any]]
        The rows, as values or as text.
    keys : Sequence[str]
        The columns that say which run a row is of.
    metric : str
        The metric that is shown.
    told : Verdict[str]
        Which methods are marked, in the rows of all clients; see `method_of`.
    """
    counts = [name for name in (EXAMPLES, EVENTS) if any(row.get(name) not in (None, "") for row in rows)]
    events = ", ".join(dict.fromkeys(str(row[EVENT]) for row in rows if row.get(EVENT)))
    lines = [
        [
            *(str(row.get(key, "")) for key in (*keys, OF)),
            *(str(row.get(name, "")) for name in counts),
            _value(row, metric) + (MARK if row[OF] == POOLED and method_of(row, keys) in told.alike else ""),
        ]
        for row in rows
    ]
    named = [events_column(events) if name == EVENTS and events else name for name in counts]
    return Table(
        [*keys, OF, *named, spelt(metric)], lines, len(keys) + 1, note=f"{WORDS} {told.sentence}".rstrip()
    )


def method_of(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the method of a row: its values but the seed."""
    return " ".join(str(row.get(k, "")) if k in AXES else f"{k}={row.get(k, '')}" for k in keys if k != SEED)


def _value(row: Mapping[str, Any], metric: str) -> str:
    value, *ends = (_number(row.get(f"{metric}{end}")) for end in ("", LOW, HIGH))
    return with_interval(metric, shown(metric, value), ends)


def _number(value: Any) -> float | None:
    return None if value in (None, "") else float(value)


FOLDS = "folds.csv"
CLIENT = "client "


class PooledFolds:
    """Collects the folds of a sweep's runs, and writes ``folds.csv``.

    Every example is tested on in one fold. Means over examples are weighted by the folds' numbers of
    examples, and states of further metrics are added: so each metric is that of all out-of-fold predictions.

    Parameters
    ----------
    folder : Path
        The sweep's folder.
    keys : Sequence[str]
        The swept keys besides strategy, client, objective and seed.
    """

    def __init__(self, folder: Path, keys: Sequence[str]) -> None:
        self.folder = folder
        self.keys = [key for key in keys if key != HeldOut.FOLDS.one]
        self._main = ""
        self._runs: dict[tuple[tuple[str, object], ...], list[tuple[RunConfig, Path, Summary]]]
        self._runs = defaultdict(list)
        self._done: dict[tuple[tuple[str, object], ...], dict[str, dict[str, Any]]] = {}

    def add(self, config: RunConfig, folder: Path, summary: Summary) -> None:
        """Add a fold that is done; write the file once all of its run are."""
        axes = {key: short(getattr(config, key)) for key in ("strategy", "client", "objective")}
        axes |= {**values_of(config, self.keys), "seed": str(config.seed)}
        runs = self._runs[tuple(axes.items())]
        runs[:] = [run for run in runs if run[0].fold != config.fold] + [(config, folder, summary)]
        self._main = summary.compared_by
        self._done.pop(tuple(axes.items()), None)
        self.write(at_end=False)

    def write(self, at_end: bool) -> None:
        """Write the file, if all folds of a run are done; methods are compared ``at_end``."""
        if not (rows := self.rows):
            return
        told = self._compared(rows, at_end)
        for row in rows:
            row[NOT_TOLD] = told.of(method_of(row, self._keys)) if row[OF] == POOLED and told.sentence else ""
        columns = dict.fromkeys([*(c for row in rows for c in row if not _is_new(c))])
        columns |= dict.fromkeys(c for row in rows for c in row)
        write_atomically(self.folder / FOLDS, csv_text(columns, rows))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each run of which all folds are done, and for each of its clients."""
        done = {axes: runs for axes, runs in self._runs.items() if len(runs) == runs[0][0].folds}
        self._done |= {axes: out_of_fold(runs) for axes, runs in done.items() if axes not in self._done}
        return [{**dict(a), OF: whose, **metrics} for a in done for whose, metrics in self._done[a].items()]

    @property
    def _keys(self) -> list[str]:
        return [*dict.fromkeys((*AXES, *self.keys, SEED))]

    @property
    def compared_by(self) -> str:
        """The metric by which methods are compared: of a rare event, AUROC instead of accuracy."""
        led = all(row.get(CALIBRATION) is not None for row in self.rows if row[OF] == POOLED)
        return AUROC if led and self._main == "accuracy" else self._main

    def _compared(self, rows: Sequence[Mapping[str, Any]], at_end: bool) -> Verdict[str]:
        """Return which methods cannot be told from the best."""
        if not at_end:
            return Verdict(POOLED)
        pooled = {tuple(str(row[key]) for key in self._keys): row for row in rows if row[OF] == POOLED}
        methods: dict[str, list[Folds]] = defaultdict(list)
        by = self.compared_by
        for axes, runs in self._runs.items():
            row = pooled.get(tuple(str(dict(axes)[key]) for key in self._keys))
            if row is not None:
                found = [Run.read(folder) for _, folder, _ in runs]
                value = row.get(by)
                methods[method_of(row, self._keys)].append(Folds(row[SEED], value, found))
        every = (summary for runs in self._runs.values() for *_, summary in runs)
        higher = by == AUROC or any(by in summary.higher_is_better for summary in every)
        return told_out_of_fold(methods, by, higher)

    def table(self, at_end: bool = True) -> Table | None:
        """Return the table, marked ``at_end``; None before all folds of a run are done."""
        if not (rows := self.rows):
            return None
        return out_of_fold_table(rows, self._keys, self.compared_by, self._compared(rows, at_end))


def _is_new(column: str) -> bool:
    return column in (EVENTS, EVENT) or column.endswith((LOW, HIGH))


def out_of_fold(runs: Sequence[tuple[RunConfig, Path, Summary]]) -> dict[str, dict[str, Any]]:
    """Return the metrics of all folds' test examples by whose they are: pooled, and by client.

    A client has its further metrics only where the folds' folders have its states, with few clients.
    """
    problem = inputs_of(runs[0][0]).dataset.problem
    names: dict[str, str] = {}
    reported: dict[str, list[MetricRecord]] = defaultdict(list)
    states: dict[str, list[Any]] = defaultdict(list)
    for config, folder, summary in runs:
        for client, record in _reported(config, folder, summary, problem).items():
            reported[client].append(record)
            names[client] = summary.clients.get(client, {}).get("name", client)
        for whose, of_one in states_of(folder).items():
            states[whose].append(of_one)
    every = [record for records in reported.values() for record in records]
    found = {POOLED: _together(every, states[POOLED], problem)}
    for client in sorted(reported, key=int):
        found[f"{CLIENT}{names[client]}"] = _together(reported[client], states[client], problem)
    _make_exact(found, [predictions_of(folder) for _, folder, _ in runs], problem)
    _add_intervals(found, [Run.read(folder) for _, folder, _ in runs], problem)
    return found


def _make_exact(
    found: Mapping[str, dict[str, Any]], tables: Sequence[DataFrame | None], problem: Problem
) -> None:
    """Replace metrics of thresholds by those of single cases, if all folds keep these."""
    import pandas as pd

    if problem.case_metrics or any(table is None for table in tables):
        return
    table = pd.concat(tables, ignore_index=True)
    for whose, metrics in found.items():
        of_these = table if whose == POOLED else table[table[SITE] == whose.removeprefix(CLIENT)]
        metrics.update(exact_of_table(of_these, problem))


def _add_intervals(found: Mapping[str, dict[str, Any]], runs: Sequence[Run], problem: Problem) -> None:
    """Add the events and the intervals, over groups, of all clients and of each; without cases nothing.

    Of a rare event its `figures` are added, too.
    """
    table = together(runs)
    if table is None:
        return
    further = of_rare_event(table, found)
    if is_binary(table) and is_rare(table):
        for whose, metrics in found.items():
            of_these = table if whose == POOLED else table[table[SITE] == whose.removeprefix(CLIENT)]
            metrics.update(figures(of_these) | metrics)
    clients = {whose.removeprefix(CLIENT): of for whose, of in found.items() if whose != POOLED}
    summary = {
        "pooled": found[POOLED],
        "clients": {name: {**metrics, "name": name} for name, metrics in clients.items()},
    }
    seed = int(str(runs[0].config["seed"]))
    intervals = intervals_of(table, summary, problem, seed, further)
    of_sites = {name: (intervals["clients"].get(name, {}), table[table[SITE] == name]) for name in clients}
    for whose, (ends, cases) in {"": (intervals["pooled"], table), **of_sites}.items():
        row = found[f"{CLIENT}{whose}" if whose else POOLED]
        row |= {EVENTS: int(cases[TARGET].sum()), EVENT: runs[0].event} if is_binary(table) else {}
        row |= {f"{name}{end}": v for name, e in ends.items() for end, v in zip((LOW, HIGH), e, strict=True)}


def _reported(config: RunConfig, folder: Path, summary: Summary, problem: Problem) -> dict[str, MetricRecord]:
    """Return each client's metrics of the test examples of a fold, in the round that counts."""
    last = summary.best_round or summary.rounds
    phase = "train" if config.eval_model == "local" else "evaluate"
    prefix = f"{TEST}-" if config.val_fraction else ""
    found = {}
    for row in rows_of(folder / "clients.csv"):
        if (row["round"], row["phase"]) == (str(last), phase):
            values = {name: row.get(prefix + name) for name in problem.metrics}
            values["eval-examples"] = row.get(f"{prefix or 'eval-'}examples")
            found[row["partition"]] = MetricRecord({k: float(v) for k, v in values.items() if v})
    return found


def _together(reported: Sequence[MetricRecord], states: Sequence[Any], problem: Problem) -> dict[str, Any]:
    """Return the metrics of several reports' examples in one place, and how many there are."""
    count = sum(int(number(record, "eval-examples") or 0) for record in reported)
    return {EXAMPLES: count, **of_all_reports(reported, states, problem)}


def exact_of_table(table: DataFrame, problem: Problem) -> dict[str, float]:
    """Return a run's metrics of scores, of its ``predictions.parquet`` or a part of it."""
    scores, targets = (
        table[[name for name in table.columns if name.partition("-")[0] == kind]].to_numpy()
        for kind in (SCORE, TARGET)
    )
    if problem.predicts == CLASSES:
        targets = targets[:, 0]
        scores = np.hstack([1 - scores, scores]) if scores.shape[1] == 1 else scores
    return exact_metrics(problem, scores, targets) if len(table) else {}

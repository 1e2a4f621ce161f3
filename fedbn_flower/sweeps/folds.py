"""The out-of-fold results of cross-validation: of all folds of a run together, by client and pooled."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord

from fedbn_flower.clients import Problem

from ..config.run_config import RunConfig
from ..core.files import csv_text, write_atomically
from ..core.ground.columns import TEST
from ..federation.inputs import inputs_of
from ..names import short
from ..records.metric_states import POOLED, states_of
from ..records.metrics import number, of_all_reports, shown
from ..records.summary import Summary
from ..results.progress import values_of
from ..results.run_reader import rows_of

FOLDS = "folds.csv"
EXAMPLES = "examples"


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
        self.keys = [key for key in keys if key != "fold"]
        self.compared_by = ""
        self._runs: dict[tuple[tuple[str, object], ...], list[tuple[RunConfig, Path, Summary]]]
        self._runs = defaultdict(list)

    def add(self, config: RunConfig, folder: Path, summary: Summary) -> None:
        """Add a fold that is done; write the file once all of its run are."""
        axes = {key: short(getattr(config, key)) for key in ("strategy", "client", "objective")}
        axes |= {**values_of(config, self.keys), "seed": str(config.seed)}
        runs = self._runs[tuple(axes.items())]
        runs[:] = [run for run in runs if run[0].fold != config.fold] + [(config, folder, summary)]
        self.compared_by = summary.compared_by
        if rows := self.rows:
            columns = dict.fromkeys(column for row in rows for column in row)
            write_atomically(self.folder / FOLDS, csv_text(columns, rows))

    @property
    def rows(self) -> list[dict[str, object]]:
        """A row for each run of which all folds are done, and for each of its clients."""
        return [
            {**dict(axes), "of": whose, **metrics}
            for axes, runs in self._runs.items()
            if len(runs) == runs[0][0].folds
            for whose, metrics in out_of_fold(runs).items()
        ]

    def lines(self) -> list[list[str]]:
        """Return a table by text: a header, and a line for each row with the metric that runs go by."""
        rows = self.rows
        if not rows:
            return []
        names = [name for name in rows[0] if name in {"of", "seed"} or name in self.keys]
        names = ["strategy", "client", "objective", *names, EXAMPLES]
        by = self.compared_by
        cells = [[*(str(row[name]) for name in names), shown(by, _number(row.get(by)))] for row in rows]
        return [[*names, by], *cells]

    def markdown(self) -> str:
        """Return the table in Markdown, with a title; empty before all folds of a run are done."""
        if not (lines := self.lines()):
            return ""
        header, *cells = lines
        table = "".join(f"| {' | '.join(line)} |\n" for line in (header, ["---"] * len(header), *cells))
        return f"\nOut of fold: each example is tested on in one of the folds, and counts once.\n\n{table}"


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
        found[f"client {names[client]}"] = _together(reported[client], states[client], problem)
    return found


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


def _number(value: object) -> float | None:
    return value if isinstance(value, float) else None

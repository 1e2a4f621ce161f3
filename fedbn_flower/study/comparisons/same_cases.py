"""Runs on the same held-out cases, compared by what they predict of each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fedbn_flower.clients.problems.metrics import METRICS, Predicted
from fedbn_flower.clients.problems.metrics.base import CLASSES, NUMBERS

from ...records.cases import GROUP, ID, OF_CLASS, SCORE, SITE, TARGET, is_binary, predictions_of
from ...results.run_reader import Run
from ..intervals import candidates, cost, same_value
from ..statistics.case_metrics import CaseMetric
from ..statistics.cases import Cases
from ..statistics.on_cases import CaseTests, compare_on_cases
from ..statistics.paired import Difference

if TYPE_CHECKING:
    from pandas import DataFrame

K = TypeVar("K", bound=Hashable)
MOST = 3_000_000
"""Rows times cases times `cost`: what is compared in some seconds."""
ALL, TOO_MANY = "all", "the rows and cases are too many"


class OnCases(NamedTuple):
    """The tests of all pairs, and of how many cases they are; or why there are none."""

    tests: CaseTests | None
    cases: int = 0
    why_not: str = ""


def compare_runs(runs: Sequence[Run], metric: str, values: Sequence[float | None]) -> OnCases:
    """Compare runs of several methods, one of each, on the cases that they all predict.

    Parameters
    ----------
    runs : Sequence[Run]
        The runs.
    metric : str
        The metric's name.
    values : Sequence[float]
        Its value in each run, which its cases must have.
    """
    tables: list[DataFrame] = []
    for run in runs:
        table = cases_of(run)
        if table is None:
            return OnCases(None, why_not="not all runs keep predictions of a single target")
        if len(runs) * len(table) > MOST:
            return OnCases(None, why_not=TOO_MANY)
        tables.append(table)
    return compare_tables(tables, runs[0].config, metric, values)


def compare_tables(
    tables: Sequence[DataFrame], config: Mapping[str, object], metric: str, values: Sequence[float | None]
) -> OnCases:
    """Compare tables of cases, of runs with such a configuration; see `compare_runs`."""
    found = metric_of_cases(tables, config, metric, values)
    if found is None:
        return OnCases(None, why_not=f"the predictions do not give the runs' {metric}")
    if len(tables) * len(tables[0]) * cost(found) > MOST:
        return OnCases(None, why_not=TOO_MANY)
    try:
        return OnCases(compare_on_cases(tables, found, seed=0), len(tables[0]))
    except ValueError:
        return OnCases(None, why_not="not all runs have the same held-out cases")


def difference_of(first: Run, second: Run, metric: str, values: tuple[float, float]) -> Difference | None:
    """Return by how much a run's metric is more than the first one's, of all cases, with its interval.

    It is by the test of `compare_runs`; None where that has none.
    """
    found = compare_runs([second, first], metric, values[::-1])
    return found.tests.pairs.of(0, 1) if found.tests else None


def cases_of(run: Run) -> DataFrame | None:
    """Return the cases of a run as `Cases.of` takes them; None if it keeps none, or has several targets.

    Of a run that leaves out a site they are that site's, as its metrics are.
    Where clients have the same cases, all are of one site, and those of one example are a group.
    """
    table = predictions_of(run.folder, TARGET, new=bool(run.summary.left_out))
    if table is None:
        return None
    names = [name for name in table.columns if name.startswith(OF_CLASS)]
    if not names and SCORE not in table.columns:
        return None
    table = table.rename(columns={name: f"{OF_CLASS}{number}" for number, name in enumerate(names)})
    if not table[ID].duplicated().any():
        return table
    examples = table[ID].astype(str)
    groups = table[GROUP].astype(object).where(table[GROUP].notna(), examples)
    return table.assign(**{SITE: ALL, ID: table[SITE].astype(str) + "/" + examples, GROUP: groups})


def metric_of_cases(
    tables: Sequence[DataFrame], config: Mapping[str, object], metric: str, values: Sequence[float | None]
) -> CaseMetric | None:
    """Return the metric of single cases that has the runs' values; None if no built-in one has."""
    every = [Cases.of(table) for table in tables]
    for found in _candidates(tables[0], config, metric):
        if all(same_value(found.value(cases), of) for cases, of in zip(every, values, strict=True)):
            return found
    return None


def _candidates(table: DataFrame, config: Mapping[str, object], name: str) -> list[CaseMetric]:
    """Return what the name may mean; metrics of the user's own code are not imported."""
    classes = sum(column.startswith(OF_CLASS) for column in table.columns) or 2 * is_binary(table)
    predicted = Predicted(CLASSES, classes) if classes else Predicted(NUMBERS, 1)
    if thresholds := config.get("thresholds"):
        predicted = Predicted(predicted.kind, predicted.size, int(str(thresholds)))
    head, _, argument = name.partition(":")
    made = METRICS.get(head)
    if made is not None and predicted.kind not in made.kinds:
        return []
    metric = made(predicted, argument) if made else None
    return list(candidates(name, predicted.kind, metric))

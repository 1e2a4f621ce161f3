"""Which cells of a table cannot be told from the best: over seeds, or on the cases of single runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from fedbn_flower.clients.problems.metrics import METRICS, Predicted
from fedbn_flower.clients.problems.metrics.base import CLASSES, NUMBERS

from ...core.ground.columns import HeldOut
from ...core.text import are, joined, listed
from ...records.cases import GROUP, ID, OF_CLASS, SITE, TARGET, is_binary, predictions_of
from ...records.metrics import PERCENT, percent, spelt
from ...records.summary import OfClasses
from ...results.held_out import held_out_by_site
from ...results.report.runs_by_seed import Marks
from ...results.run_reader import Run, changed_data
from ...results.summary import deciding_column, metrics_by_group, seeds_text
from ..intervals import candidates, cost, same_value, with_numbered_classes
from ..statistics.case_metrics import CaseMetric
from ..statistics.cases import Cases
from ..statistics.paired import (
    FEWEST_SEEDS,
    BestCells,
    CaseTests,
    Difference,
    Pairs,
    cannot_be_told_from_best,
    compare_on_cases,
    paired_t_tests,
    told_from_best,
    too_few_events,
)

if TYPE_CHECKING:
    from pandas import DataFrame

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
    table = table if table is None else with_numbered_classes(table)
    if table is None:
        return None
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


K = TypeVar("K", bound=Hashable)
NOT_TOLD = "cannot be told from the best"
DIFFERENCE, P_VALUE = "difference from the best", "p (Bonferroni)"
COLUMNS = (DIFFERENCE, P_VALUE)
"""The columns of `Verdict.shown`."""
MOST_NAMED = 6
"""Rows that a sentence names; of more it says how many."""
CORRECTED = "Bonferroni for all pairs, 5 %"
TOGETHER = "The 95 % intervals of differences hold for all pairs together."
DIVIDING = ("group-column", "split-by")
"""The keys by which other cases of data without a test set are held out."""
OTHER_DATA = "Runs on different data are not compared with each other."
OTHER_CASES = "Runs that differ in {} are not compared with each other: each is tested on other cases."
OTHER_EVENTS = "Runs of different events ({}) are not compared by {}: it is of other cases."
OF_EITHER = ("accuracy", "loss", "auroc", "balanced-accuracy")
"""Metrics that are the same whichever of two classes is the event."""
NOT_COMPARED = {
    HeldOut.FOLDS: "Folds are not compared with each other: each is tested on other cases.",
    HeldOut.SITE: "Runs that leave out different sites are not compared with each other, but over these "
    "sites.",
}
"""What is said of runs that hold out other data."""
ONE_SEED = "One seed says nothing of how training varies."


def examples_by_class(run: Run) -> Sequence[int]:
    """Return how many held-out examples are of each class, or of a site left out; empty without."""
    if run.summary.left_out:
        of_sites = held_out_by_site(run, new=True).values()
        return [number for of in of_sites for name, number in of.items() if name]
    return (run.summary.per_class or run.summary.global_per_class or OfClasses()).examples


def events_of(run: Run) -> int | None:
    """Return how many held-out examples are not of the most frequent class; None without classes."""
    counts = examples_by_class(run)
    return sum(counts) - max(counts) if counts else None


@dataclass(frozen=True)
class Verdict(Marks[K]):
    """What is known of which cell of a table is best; the column that is compared is `deciding_column`.

    Parameters
    ----------
    differences : Mapping[K, Difference]
        From the best, of each other cell; a cell whose test is undefined has none.
    pairs : Pairs[K], optional
        What all pairs are compared by; None if nothing is known.
    untested : Collection[K]
        Cells of fewer seeds than a test needs, beside others that are tested.
    """

    differences: Mapping[K, Difference] = field(default_factory=dict)
    pairs: Pairs[K] | None = None
    untested: Collection[K] = ()

    def of(self, cell: K) -> str:
        """Return whether a cell cannot be told from the best: ``yes``, ``no`` or ``unknown``, if untested."""
        is_tested = self.known and cell not in self.untested
        return ("yes" if cell in self.alike else "no") if is_tested else "unknown"

    @property
    def header(self) -> Sequence[str]:
        return COLUMNS if self.differences else ()

    def shown(self, cell: K, metric: str) -> Sequence[str]:
        """Return a cell's difference with its interval, and p-value; empty for the best one."""
        if not self.differences:
            return ()
        return shown_difference(self.differences[cell], metric) if cell in self.differences else ["", ""]


def shown_difference(found: Difference, metric: str) -> list[str]:
    """Return a difference with its interval, and its p-value: ``-3.1 (-5.9 to -0.3)``, ``0.031``.

    Both are empty of a test that is undefined.
    """
    if math.isnan(found.low):
        return ["", ""]
    value, low, high = _as_text(found[:3], metric)
    return [f"{value} ({low} to {high})", p_text(found.p_value)]


def _as_text(differences: Iterable[float], metric: str) -> list[str]:
    factor, form = (percent(metric), "+z.1f") if metric in PERCENT else (1, "+z.4f")
    return [f"{factor * number:{form}}" for number in differences]


def p_text(p_value: float) -> str:
    """Return a p-value as text, of three digits."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def verdict(
    runs: Mapping[K, Sequence[Run]],
    metric: str,
    labels: Mapping[K, str],
    datasets: Collection[str] = (),
    singly: bool = True,
) -> Verdict[K]:
    """Compare the cells of a table: over seeds, or on the same cases if each has one run.

    Parameters
    ----------
    runs : Mapping[K, Sequence[Run]]
        The complete runs of each cell, which differ in their seed.
    metric : str
        The metric that is compared.
    labels : Mapping[K, str]
        What the sentence calls each cell.
    datasets : Collection[str]
        The data of the runs.
    singly : bool
        Whether single runs are compared on their cases, which takes longer.
    """
    every = [run for members in runs.values() for run in members]
    column = deciding_column([metrics_by_group(run.summary).keys() for run in every])
    found = {cell: _by_seed(members, column, metric) for cell, members in runs.items()}
    found = {cell: by_seed for cell, by_seed in found.items() if by_seed}
    if len(found) < 2:
        ended = sum(map(bool, runs.values()))
        who = next((f"only {labels[cell]} has a value" for cell in found), "no run has a value")
        words = f"Nothing is compared: {who} of {spelt(metric)} in the column {column!r}."
        return Verdict(column, sentence=words if ended > 1 else "")
    if words := _not_compared(every, metric, datasets):
        return Verdict(column, sentence=words)
    higher = any(metric in run.summary.higher_is_better for run in every)
    events = min((n for run in every if (n := events_of(run)) is not None), default=None)
    seeds = list(dict.fromkeys(seed for by_seed in found.values() for seed in by_seed))
    rows = {cell: np.array([of.get(seed, np.nan) for seed in seeds]) for cell, of in found.items()}
    few = events is not None and too_few_events(events)
    lacking = ""
    if singly and not few and all(len(by_seed) == 1 for by_seed in found.values()):
        members = [next(run for run in runs[cell] if metric in _metrics(run, column)) for cell in found]
        tests = compare_runs(members, metric, [next(iter(by_seed.values())) for by_seed in found.values()])
        if tests.tests:
            told = on_cases(column, list(found), tests, labels, metric, higher)
            return replace(told, sentence=f"{told.sentence} {ONE_SEED}")
        lacking = f" Nor from the cases: {tests.why_not}."
    known = {cell: int((~np.isnan(row)).sum()) for cell, row in rows.items()}
    enough = [cell for cell, number in known.items() if number >= FEWEST_SEEDS]
    untested = [cell for cell in rows if cell not in enough] if len(enough) > 1 else []
    if untested:
        named = listed([labels[cell] for cell in untested], MOST_NAMED)
        lacking = f" Not tested, with fewer than {FEWEST_SEEDS} seeds: {named}."
        rows = {cell: rows[cell] for cell in enough}
    resolution = _resolution(every, metric)
    best = cannot_be_told_from_best(rows, higher, events, resolution=resolution)
    seeds_of_each = seeds_text([known[cell] for cell in rows])
    told = over_seeds(column, best, labels, metric, seeds_of_each, lacking)
    return replace(told, pairs=paired_t_tests(rows, resolution), untested=untested) if told.known else told


def _not_compared(runs: Sequence[Run], metric: str, datasets: Collection[str]) -> str:
    """Return why runs are not compared by a metric: their held-out cases or events differ; empty if not."""
    if len(set(datasets)) > 1 or changed_data(runs):
        return OTHER_DATA
    if divided := differently_divided(runs):
        return OTHER_CASES.format(divided)
    events = dict.fromkeys(", ".join(of) for run in runs if (of := run.config.get("events")))
    if len(events) > 1 and metric not in OF_EITHER:
        return OTHER_EVENTS.format(" and ".join(events), spelt(metric))
    others = (of for of in NOT_COMPARED if len({str(run.config.get(of.one)) for run in runs}) > 1)
    return next((NOT_COMPARED[of] for of in others), "")


def differently_divided(runs: Sequence[Run]) -> str:
    """Return the key by which runs hold out other cases of the same data; empty if they hold out the same."""
    if len({run.config.get("data") for run in runs}) < 2:
        return ""
    keys = (key for key in DIVIDING if len({str(run.config.get(key) or "") for run in runs}) > 1)
    return "" if (key := next(keys, "")) and _hold_out_the_same(runs) else key


def _hold_out_the_same(runs: Sequence[Run]) -> bool:
    """Whether runs kept their cases, and these are the same, as where the data have a test set."""
    tables = map(cases_of, runs)
    cases = {None if t is None else frozenset(zip(t[ID].astype(str), t[TARGET], strict=True)) for t in tables}
    return len(cases) == 1 and None not in cases


def over_seeds(
    column: str,
    best: BestCells[K],
    labels: Mapping[K, str],
    metric: str,
    seeds: str,
    lacking: str,
    where: str = "",
) -> Verdict[K]:
    """Return what the cells' values under several seeds say; ``where`` they are of, if not usual ones."""
    if best.reason:
        words = f"Which is best{where} cannot be known from {best.reason}.{lacking}"
        return Verdict(column, sentence=f"{words} The best mean is that of {labels[best.best]}.")
    words = f"{in_words(best, labels, 'mean', metric)} (paired t-tests over {seeds} seeds, {CORRECTED})."
    return Verdict(column, frozenset(best.alike), True, f"{words} {TOGETHER}{lacking}", _defined(best))


def on_cases(
    column: str,
    cells: Sequence[K],
    found: OnCases,
    labels: Mapping[K, str],
    metric: str,
    higher: bool,
    which: str = "held-out",
) -> Verdict[K]:
    """Return what single runs' predictions of the same cases say, which are those called ``which``."""
    assert found.tests
    test, pairs = found.tests
    named = Pairs(cells, pairs.values, pairs.compare)
    best = told_from_best(named, higher)
    tested = f"{test} on the same {found.cases:,} {which} cases, {CORRECTED}"
    words = f"{in_words(best, labels, 'value', metric)} ({tested}). {TOGETHER}"
    return Verdict(column, frozenset(best.alike), True, words, _defined(best), named)


def _defined(best: BestCells[K]) -> dict[K, Difference]:
    return {cell: found for cell, found in best.behind.items() if not math.isnan(found.low)}


def _metrics(run: Run, column: str) -> Mapping[str, float | None]:
    return metrics_by_group(run.summary).get(column, {})


def _by_seed(members: Sequence[Run], column: str, metric: str) -> dict[object, float]:
    found = ((run.config.get("seed"), _metrics(run, column).get(metric)) for run in members)
    return {seed: float(value) for seed, value in found if value is not None}


def _resolution(runs: Sequence[Run], metric: str) -> float:
    """Return what one held-out example changes an accuracy by, at most; 0 of other metrics."""
    counts = [sum(examples_by_class(run)) for run in runs]
    return 1 / min(counts) if metric == "accuracy" and counts and min(counts) else 0.0


def in_words(best: BestCells[K], labels: Mapping[K, str], what: str, metric: str = "") -> str:
    """Return which rows are marked, and which are worse, in words; ``what`` is compared.

    With a ``metric``, each has its difference from the best, as `shown_difference` has it in the table.
    """
    others = [cell for cell in labels if cell in best.behind]
    alike, worse = ([c for c in others if (c in best.alike) is like] for like in (True, False))
    first = f"Marked *: {labels[best.best]}, which"
    words = f"{first} is best"
    if alike:
        named = _named(alike, labels, best, metric)
        words = f"{first} has the best {what}, and {named}, which cannot be told from it"
    if not worse:
        return words
    return f"{words}; {_named(worse, labels, best, metric)} {are(len(worse))} worse"


def _named(cells: Sequence[K], labels: Mapping[K, str], best: BestCells[K], metric: str) -> str:
    """Return rows by name with their differences, of many how many they are, and between which these lie."""
    found = _defined(best) if metric else {}
    unit = " points" if metric in PERCENT else ""
    if len(cells) > MOST_NAMED:
        differences = sorted(found[cell].difference for cell in cells if cell in found)
        least, most = _as_text([differences[0], differences[-1]], metric) if differences else ("", "")
        return f"{len(cells)} others" + (f" ({least} to {most}{unit})" if differences else "")

    def named(cell: K) -> str:
        if cell not in found:
            return labels[cell]
        value, low, high = _as_text(found[cell][:3], metric)
        return f"{labels[cell]} ({value}{unit}, 95 % {low} to {high})"

    return joined(list(map(named, cells)))

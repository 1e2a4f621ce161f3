"""Which cells of a table cannot be told from the best: marks, differences, and a sentence in words."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...records.metrics import PERCENT, percent
from ...records.summary import OfClasses
from ...results.held_out import held_out_by_site
from ...results.report.verdicts import Marks
from ...results.run_reader import Run
from ...results.summary import deciding_column, metrics_by_group, seeds_text
from ..statistics.paired import (
    BestCells,
    Difference,
    Pairs,
    cannot_be_told_from_best,
    paired_t_tests,
    told_from_best,
    too_few_events,
)
from .same_cases import OnCases, compare_runs

K = TypeVar("K", bound=Hashable)
NOT_TOLD = "cannot be told from the best"
DIFFERENCE, P_VALUE = "difference from the best", "p (Bonferroni)"
COLUMNS = (DIFFERENCE, P_VALUE)
"""The columns of `Verdict.shown`."""
CORRECTED = "Bonferroni for all pairs, 5 %"
TOGETHER = "In brackets: 95 % intervals that hold for all pairs together."
OTHER_DATA = "Runs on different data are not compared with each other."
NOT_COMPARED = {
    "fold": "Folds are not compared with each other: each is tested on other cases.",
    "left-out": "Runs that leave out different sites are not compared with each other, but over these sites.",
}
"""What is said of runs that differ in a key."""
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
    """

    differences: Mapping[K, Difference] = field(default_factory=dict)
    pairs: Pairs[K] | None = None

    def of(self, cell: K) -> str:
        """Return whether a cell cannot be told from the best: ``yes``, ``no`` or ``unknown``."""
        return ("yes" if cell in self.alike else "no") if self.known else "unknown"

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
    factor, form = (percent(metric), "+z.1f") if metric in PERCENT else (1, "+z.4g")
    value, low, high = (f"{factor * number:{form}}" for number in found[:3])
    return [f"{value} ({low} to {high})", p_text(found.p_value)]


def p_text(p_value: float) -> str:
    """Return a p-value as text, of three digits."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def verdict(
    runs: Mapping[K, Sequence[Run]],
    metric: str,
    labels: Mapping[K, str],
    datasets: Collection[str] = (),
    on_cases: bool = True,
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
    on_cases : bool
        Whether single runs are compared on their cases, which takes longer.
    """
    every = [run for members in runs.values() for run in members]
    column = deciding_column([metrics_by_group(run.summary).keys() for run in every])
    found = {cell: _by_seed(members, column, metric) for cell, members in runs.items()}
    found = {cell: by_seed for cell, by_seed in found.items() if by_seed}
    if len(found) < 2:
        return Verdict(column, frozenset(), False, "")
    if len(set(datasets)) > 1:
        return Verdict(column, frozenset(), False, OTHER_DATA)
    for key, words in NOT_COMPARED.items():
        if len({str(run.config.get(key)) for run in every}) > 1:
            return Verdict(column, frozenset(), False, words)
    higher = any(metric in run.summary.higher_is_better for run in every)
    events = min((n for run in every if (n := events_of(run)) is not None), default=None)
    seeds = list(dict.fromkeys(seed for by_seed in found.values() for seed in by_seed))
    rows = {cell: np.array([of.get(seed, np.nan) for seed in seeds]) for cell, of in found.items()}
    few = events is not None and too_few_events(events)
    lacking = ""
    if on_cases and not few and all(len(by_seed) == 1 for by_seed in found.values()):
        members = [next(run for run in runs[cell] if metric in _metrics(run, column)) for cell in found]
        tests = compare_runs(members, metric, [next(iter(by_seed.values())) for by_seed in found.values()])
        if tests.tests:
            return _on_cases(column, list(found), tests, labels, higher)
        lacking = f" Nor from the cases: {tests.why_not}."
    resolution = _resolution(every, metric)
    best = cannot_be_told_from_best(rows, higher, events, resolution=resolution)
    told = _over_seeds(column, rows, best, labels, lacking)
    return replace(told, pairs=paired_t_tests(rows, resolution)) if told.known else told


def _over_seeds(
    column: str,
    rows: Mapping[K, NDArray[np.float64]],
    best: BestCells[K],
    labels: Mapping[K, str],
    lacking: str,
) -> Verdict[K]:
    name = labels[best.best]
    if best.reason:
        words = f"Which is best cannot be known from {best.reason}.{lacking} The best mean is that of {name}."
        return Verdict(column, frozenset(), False, words)
    over = seeds_text([int((~np.isnan(row)).sum()) for row in rows.values()])
    words = f"{in_words(best, labels, 'mean')} (paired t-tests over {over} seeds, {CORRECTED}). {TOGETHER}"
    return Verdict(column, frozenset(best.alike), True, words, _defined(best))


def _on_cases(
    column: str, cells: Sequence[K], found: OnCases, labels: Mapping[K, str], higher: bool
) -> Verdict[K]:
    assert found.tests
    test, pairs = found.tests
    named = Pairs(cells, pairs.values, pairs.compare)
    best = told_from_best(named, higher)
    words = (
        f"{in_words(best, labels, 'value')} ({test} on the same {found.cases:,} held-out cases, "
        f"{CORRECTED}). {TOGETHER} {ONE_SEED}"
    )
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


def in_words(best: BestCells[K], labels: Mapping[K, str], what: str) -> str:
    """Return which rows are marked, in words; ``what`` is compared."""
    alike, cells, name = len(best.alike), 1 + len(best.behind), labels[best.best]
    if alike == 1:
        return f"Marked *: {name} is ahead of {'the other' if cells == 2 else f'all {cells - 1} others'}"
    if alike == cells:
        return f"Marked *: none of the {cells} rows can be told from the best {what}, {name}"
    return f"Marked *: {alike} of {cells} rows cannot be told from the best {what}, {name}"

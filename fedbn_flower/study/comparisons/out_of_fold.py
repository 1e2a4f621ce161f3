"""The out-of-fold results of cross-validation: every case is predicted once, by a model without its fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.ground.columns import POOLED
from ...records.metrics import shown, spelt
from ...results.held_out import EVENTS, events_column
from ...results.report.sections.intervals import with_interval
from ...results.report.tables import Table
from ...results.report.verdicts import MARK
from ...results.run_reader import Run
from ..statistics.paired import Pairs, cannot_be_told_from_best, told_from_best, too_few_events
from .best_cells import CORRECTED, Verdict, in_words
from .same_cases import OnCases, cases_of, compare_tables

if TYPE_CHECKING:
    from pandas import DataFrame

AXES = ("strategy", "client", "objective")
OF, SEED, EXAMPLES, EVENT = "of", "seed", "examples", "event"
POOLED_ROW = POOLED.removesuffix("-")
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
        return Verdict(POOLED_ROW, frozenset(), False, "")
    lacking = ""
    if all(len(of) == 1 for of in methods.values()):
        found = _on_cases([of[0] for of in methods.values()], metric)
        if found.tests:
            test, pairs = found.tests
            best = told_from_best(Pairs(list(methods), pairs.values, pairs.compare), higher)
            words = (
                f"{in_words(best, labels, 'value')} ({test} on the same {found.cases:,} "
                f"out-of-fold cases, {CORRECTED}). {ONE_DIVISION}"
            )
            return Verdict(POOLED_ROW, frozenset(best.alike), True, words)
        lacking = f" Nor from the cases: {found.why_not}."
    seeds = list(dict.fromkeys(folds.seed for of in methods.values() for folds in of))
    values = {
        name: np.array([{f.seed: f.value for f in of}.get(seed, np.nan) for seed in seeds], np.float64)
        for name, of in methods.items()
    }
    best = cannot_be_told_from_best(values, higher)
    if best.reason:
        words = f"Which is best out of fold cannot be known from {best.reason}.{lacking}"
        return Verdict(POOLED_ROW, frozenset(), False, f"{words} The best mean is that of {best.best}.")
    words = f"{in_words(best, labels, 'mean')} (paired t-tests over {len(seeds)} seeds, {CORRECTED})."
    return Verdict(POOLED_ROW, frozenset(best.alike), True, words)


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
            _value(row, metric)
            + (MARK if row[OF] == POOLED_ROW and method_of(row, keys) in told.alike else ""),
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

"""Decisions of two classes: thresholds, what they miss, decision curves, calibration.

A table is one of cases, as `Result.predictions` has it: ``site``, ``target`` (the names of two classes, of
which the second is the event; or 1 for the event, else 0) and ``score``, the probability of the event, which
is predicted from a threshold on. Ties are never divided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..core.errors import not_allowed
from ..core.text import are, number_of
from ..records.cases import SCORE, SITE, TARGET, in_numbers
from .statistics.cases import Cases
from .statistics.delong import aurocs
from .statistics.intervals import share

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..results.run_reader import Run

USUAL = 0.5
"""The threshold of a prediction by the likelier class."""
FORM = "sensitivity=0.95, specificity=0.95, youden, or net-benefit=0.1 with any number between 0 and 1"
BINS, LEAST_IN_BIN = 10, 20
HIGH_AUROC, LOW_SENSITIVITY, LEAST_POSITIVES = 0.8, 0.5, 5
"""When the usual threshold is warned of: the scores tell the classes apart, and it misses most events."""
ROUNDING = 1e-12
PROBABILITIES = tuple(i / 100 for i in range(1, 100))
POOLED = "all sites pooled"
MOST_LINES = 3
"""How many sites are warned of by name."""


@dataclass(frozen=True)
class Counts:
    """What a threshold does to cases: true and false positives and negatives."""

    tp: int
    fp: int
    fn: int
    tn: int

    @property
    def sensitivity(self) -> float:
        """Share of the positives that are found; NaN without any."""
        return _share(self.tp, self.tp + self.fn)

    @property
    def specificity(self) -> float:
        """Share of the negatives that are not predicted positive; NaN without any."""
        return _share(self.tn, self.tn + self.fp)

    def net_benefit(self, probability: float) -> float:
        """Return TP/n - FP/n * p/(1 - p) (Vickers and Elkin 2006, doi:10.1177/0272989X06295361).

        ``probability`` p is that from which on one would act: p/(1 - p) false positives are worth one true.
        """
        n = self.tp + self.fp + self.fn + self.tn
        return self.tp / n - self.fp / n * probability / (1 - probability) if n else math.nan


def counts_at(table: DataFrame, threshold: float) -> Counts:
    """Return what a threshold does to the cases."""
    table = in_numbers(table)
    positive, predicted = table[TARGET].to_numpy() == 1, table[SCORE].to_numpy() >= threshold
    found = (positive & predicted, ~positive & predicted, positive & ~predicted, ~positive & ~predicted)
    return Counts(*(int(each.sum()) for each in found))


def auroc(table: DataFrame) -> float:
    """Return the area under the ROC curve; NaN without cases of both classes."""
    table = in_numbers(table)
    return float(aurocs(table[TARGET] == 1, table[SCORE]).areas[0])


def choose_threshold(table: DataFrame, rule: str) -> float:
    """Return the threshold that a rule chooses; NaN without cases of both classes.

    Parameters
    ----------
    table : DataFrame
        Cases, best of the validation set: of the cases it was chosen on, a threshold looks too good.
    rule : str
        ``sensitivity=S``: the highest threshold with a sensitivity of at least S. ``specificity=S``: the
        lowest one with a specificity of at least S, infinite if no score reaches it. ``youden``: of the
        greatest sensitivity + specificity - 1. ``net-benefit=P``: of the greatest net benefit at the
        probability P. Among equals the highest.

    Raises
    ------
    UserError
        For another rule.
    """
    name, wanted = _parsed(rule)
    table = in_numbers(table)
    if not _has_both(table):
        return math.nan
    from sklearn.metrics import roc_curve

    rates, found, thresholds = roc_curve(table[TARGET], table[SCORE], drop_intermediate=False)
    match name:
        case "sensitivity":
            point = int(np.argmax(found >= wanted))
        case "specificity":
            point = int(np.flatnonzero(1 - rates >= wanted - ROUNDING)[-1])
        case _:
            positive = float(table[TARGET].mean())
            odds = positive / (1 - positive) if name == "youden" else wanted / (1 - wanted)
            benefit = positive * found - (1 - positive) * rates * odds
            point = int(np.argmax(benefit > benefit.max() - ROUNDING))
    return float(thresholds[point])


def thresholds_by_site(
    chosen_on: DataFrame, rule: str, applied_to: DataFrame | None = None, pooled: bool = False
) -> DataFrame:
    """Return what the thresholds do that each site chooses for itself, or all together.

    Parameters
    ----------
    chosen_on : DataFrame
        The cases on which thresholds are chosen; see `choose_threshold`.
    rule : str
        How.
    applied_to : DataFrame, optional
        The cases that are decided; by default the same.
    pooled : bool
        Whether all sites have one threshold, chosen on all of their cases.

    Returns
    -------
    DataFrame
        A row for each site of ``applied_to``: ``site``, ``cases``, ``positives``, ``threshold``, ``missed``
        (positives), ``sensitivity``, ``specificity``.
    """
    import pandas as pd

    applied_to = in_numbers(chosen_on if applied_to is None else applied_to)
    of_all = choose_threshold(chosen_on, rule)
    by_site = {} if pooled else {s: choose_threshold(t, rule) for s, t in chosen_on.groupby(SITE, sort=False)}
    rows = []
    for site, cases in applied_to.groupby(SITE, sort=False):
        threshold = of_all if pooled else by_site.get(site, math.nan)
        counts = None if math.isnan(threshold) else counts_at(cases, threshold)
        rows.append(
            {
                SITE: site,
                "cases": len(cases),
                "positives": int(cases[TARGET].sum()),
                "threshold": threshold,
                "missed": math.nan if counts is None else counts.fn,
                "sensitivity": math.nan if counts is None else counts.sensitivity,
                "specificity": math.nan if counts is None else counts.specificity,
            }
        )
    return pd.DataFrame(rows)


def decision_curve(table: DataFrame, probabilities: Sequence[float] = PROBABILITIES) -> DataFrame:
    """Return the net benefit of acting on the score, on everybody (``all``) and on ``nobody``.

    There is a row for each threshold probability; see `Counts.net_benefit`.
    """
    import pandas as pd

    rows, table = [], in_numbers(table)
    everybody = counts_at(table, -math.inf)
    for probability in probabilities:
        if not 0 < probability < 1:
            raise ValueError(f"probabilities: {probability} is not between 0 and 1")
        model, of_all = (
            counts.net_benefit(probability) for counts in (counts_at(table, probability), everybody)
        )
        rows.append({"probability": probability, "model": model, "all": of_all, "nobody": 0.0})
    return pd.DataFrame(rows)


def calibration(table: DataFrame, bins: int = BINS, least: int = LEAST_IN_BIN) -> DataFrame:
    """Return the share of positives by score, in bins of about equal numbers of cases.

    Each bin has ``least`` cases or more; of fewer cases there is none. Columns: ``cases``, ``positives``,
    ``score`` (mean), ``share``, and ``low`` and ``high``, its interval of 95 %; see `statistics.intervals`.
    """
    import pandas as pd

    columns, rows = ["cases", "positives", SCORE, "share", "low", "high"], []
    if len(table) < least:
        return pd.DataFrame(columns=columns)
    cases = Cases.of(in_numbers(table))
    for low, high in _bins(np.sort(cases.scores), min(bins, len(table) // least), least):
        members = (low <= cases.scores) & (cases.scores <= high)
        found = share(cases.targets[members], cases.in_groups[members])
        counts = int(members.sum()), int(cases.targets[members].sum())
        rows.append([*counts, float(cases.scores[members].mean()), *found[:3]])
    return pd.DataFrame(rows, columns=columns)


def doubts(run: Run) -> list[str]:
    """Return `missed_in_silence` of a run's cases; nothing of a run that keeps none of two classes."""
    return [] if run.binary_cases is None else missed_in_silence(run.binary_cases, run.event)


def missed_in_silence(table: DataFrame, event: str) -> list[str]:
    """Return a line where scores tell the classes apart, and the usual threshold misses most events.

    It is of all sites together if that is so of all; otherwise of single sites. ``event`` is its name.
    """
    if line := _line(table, POOLED if table[SITE].nunique() > 1 else "", event):
        return [line]
    of_sites = (_line(cases, f"site {site}", event) for site, cases in table.groupby(SITE, sort=False))
    lines = list(filter(None, of_sites))
    more = [
        f"and {number_of(len(lines) - MOST_LINES, 'more site')}" for _ in lines[MOST_LINES : MOST_LINES + 1]
    ]
    return [*lines[:MOST_LINES], *more]


def _line(cases: DataFrame, who: str, event: str) -> str:
    counts, area = counts_at(cases, USUAL), auroc(cases)
    positives = counts.tp + counts.fn
    if positives < LEAST_POSITIVES or not area >= HIGH_AUROC or counts.sensitivity >= LOW_SENSITIVITY:
        return ""
    missed = f"{counts.fn} of {positives} events ({event}) {are(counts.fn)} missed at {USUAL}"
    better = choose_threshold(cases, "youden")
    found = counts_at(cases, better)
    return (
        f"{who}{who and ': '}AUROC {area:.2f}, but {missed}: choose a threshold, such as {better:.3g}, which "
        f"misses {found.fn} here at a specificity of {found.specificity:.2f} (Youden)"
    )


def _parsed(rule: str) -> tuple[str, float]:
    name, equals, number = rule.partition("=")
    if rule == "youden":
        return name, math.nan
    try:
        wanted = float(number)
    except ValueError:
        wanted = math.nan
    if name not in ("sensitivity", "specificity", "net-benefit") or not (equals and 0 < wanted < 1):
        raise not_allowed("threshold", rule, FORM)
    return name, wanted


def _has_both(table: DataFrame) -> bool:
    return bool(table[TARGET].nunique() == 2)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _bins(scores: NDArray[np.float64], count: int, least: int) -> Iterator[tuple[float, float]]:
    """Yield the lowest and the highest score of each bin of sorted scores; none divides equal ones."""
    if not count:
        return
    size, start = len(scores) / count, 0
    for number in range(1, count + 1):
        end = int(np.searchsorted(scores, scores[round(number * size) - 1], side="right"))
        if end - start < least:
            continue  # equal scores have filled the bin before
        if len(scores) - end < least:
            end = len(scores)
        yield float(scores[start]), float(scores[end - 1])
        if end == len(scores):
            return
        start = end

"""Metrics of subgroups of cases, the worst of them, and how far those of one attribute are apart.

How many of several clients lose by something.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...records.cases import ID, SITE, TARGET
from .case_metrics import CaseMetric
from .cases import Cases
from .intervals import DRAWS, LEVEL, NAN, Interval, intervals

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FEWEST_CASES, FEWEST_EVENTS = 30, 5
"""With fewer cases, or of two classes with fewer of either, nothing is said of a subgroup."""

NOTHING: Mapping[str, CaseMetric] = {}


@dataclass(frozen=True)
class Subgroup:
    """Some cases, and what is known of them.

    Parameters
    ----------
    name : str
        The subgroup; empty for the cases whose subgroup is not known.
    cases : int
        How many held-out cases it has.
    events : int, optional
        How many of them are of class 1, if there are two classes.
    metrics : Mapping[str, Interval]
        Empty where the cases are too few.
    sites : Mapping[str, Subgroup]
        The part of each site, by name.
    """

    name: str
    cases: int
    events: int | None
    metrics: Mapping[str, Interval] = field(default_factory=dict)
    sites: Mapping[str, Subgroup] = field(default_factory=dict)

    @property
    def is_large_enough(self) -> bool:
        """Whether it has as many cases, and events, as it takes to say something."""
        rarer = math.inf if self.events is None else min(self.events, self.cases - self.events)
        return self.cases >= FEWEST_CASES and rarer >= FEWEST_EVENTS

    @property
    def is_compared(self) -> bool:
        """Whether it is one to be compared with others: large enough, and known."""
        return bool(self.name) and self.is_large_enough

    def has(self, metric: str) -> bool:
        """Whether a metric of it is one to be compared."""
        return self.is_compared and metric in self.metrics and not math.isnan(self.metrics[metric].value)


class Gap(NamedTuple):
    """The largest difference of a metric between two subgroups, with an interval for all pairs together."""

    higher: str
    lower: str
    difference: float
    low: float
    high: float
    pairs: int


def subgroups(
    frame: DataFrame,
    words: Series,
    metrics: Mapping[str, CaseMetric],
    binary: bool = False,
    seed: int = 0,
    level: float = LEVEL,
    draws: int = DRAWS,
    without: Mapping[str, CaseMetric] = NOTHING,
) -> list[Subgroup]:
    """Return the subgroups of cases in the order of their names, those that are not known last.

    Together they have each case once.

    Parameters
    ----------
    frame : DataFrame
        See `Cases.of`.
    words : Series
        The subgroup of each row; missing where it is not known.
    metrics : Mapping[str, CaseMetric]
        The metrics, by name; each has the interval that `intervals` gives it.
    binary : bool
        Whether there are two classes, of which 1 is the event.
    seed : int
        Of the draws.
    level : float
        The confidence level.
    draws : int
        How many draws.
    without : Mapping[str, CaseMetric]
        Further metrics, which are to have no interval.
    """
    named = words.fillna("").to_numpy(str)
    names = sorted({*named.tolist()}, key=lambda name: (not name, name))
    found = []
    for name in names:
        cases = frame[named == name]
        one = _counted(name, cases, binary)
        sites = {str(site): part for site, part in cases.groupby(SITE, sort=False)}
        parts = {site: _counted(name, part, binary) for site, part in sites.items()}
        if one.is_large_enough:
            of: Any = intervals(cases, metrics, seed, draws, level)
            one = replace(one, metrics=of["pooled"] | _values(cases, without))
            for site, part in parts.items():
                if part.is_large_enough:
                    known = of["clients"][site] | _values(sites[site], without)
                    parts[site] = replace(part, metrics=known)
        found.append(replace(one, sites=parts))
    return found


def _values(part: DataFrame, metrics: Mapping[str, CaseMetric]) -> dict[str, Interval]:
    cases = Cases.of(part) if metrics else None
    return {name: Interval(of.value(cases), NAN, NAN, "none") for name, of in metrics.items() if cases}


def _counted(name: str, part: DataFrame, binary: bool) -> Subgroup:
    """Return a subgroup with its counts: a case that has several rows at a site, such as one for each of
    several models, counts once."""
    once = part.drop_duplicates([SITE, ID]) if ID in part.columns else part
    return Subgroup(name, len(once), int((once[TARGET] == 1).sum()) if binary else None)


def pairs_of(of: Collection[Subgroup]) -> int:
    """Return how many pairs of subgroups are compared."""
    return math.comb(sum(one.is_compared for one in of), 2)


def level_of_pairs(of: Collection[Subgroup], level: float = LEVEL) -> float:
    """Return the level of each pair's interval at which all pairs have theirs at ``level`` (Bonferroni)."""
    return bonferroni(level, pairs_of(of))


def gap(of: Sequence[Subgroup], metric: str) -> Gap | None:
    """Return the largest difference between subgroups; None with fewer than two that are compared.

    Parameters
    ----------
    of : Sequence[Subgroup]
        The subgroups of one attribute, with intervals at `level_of_pairs`: which pair differs most is found
        in the same values.
    metric : str
        The metric.
    """
    values = {one.name: one.metrics[metric] for one in of if one.has(metric)}
    if len(values) < 2:
        return None
    ordered = sorted(values, key=lambda name: values[name].value)
    higher, lower = ordered[-1], ordered[0]
    return Gap(higher, lower, *difference(values[higher], values[lower]), pairs_of(of))


def difference(one: Interval, other: Interval) -> tuple[float, float, float]:
    """Return the difference of two metrics of different cases, and its ends, from the intervals of both.

    ``low = d - sqrt((v - l)^2 + (u' - v')^2)``, ``high = d + sqrt((u - v)^2 + (v' - l')^2)``. Of two shares
    with Wilson's intervals this is method 10 of R. Newcombe: Interval estimation for the difference between
    independent proportions, Statistics in Medicine 17, 1998; of others see A. Donner and G. Zou: Closed-form
    confidence intervals for functions of the normal mean and standard deviation, Statistical Methods in
    Medical Research 21(4), 2012.
    """
    found = one.value - other.value
    below = math.hypot(one.value - one.low, other.high - other.value)
    above = math.hypot(one.high - one.value, other.value - other.low)
    return found, found - below, found + above


def worst(
    of: Mapping[str, Sequence[Subgroup]], metric: str, higher_is_better: bool
) -> tuple[str, Subgroup] | None:
    """Return the attribute and the subgroup with the worst value of a metric; None if none has one."""
    found = [(attribute, one) for attribute, several in of.items() for one in several if one.has(metric)]
    if not found:
        return None
    choose = min if higher_is_better else max
    return choose(found, key=lambda pair: pair[1].metrics[metric].value)


class WorseOff(NamedTuple):
    """How many of several clients lose, and how many of them may: an interval for all clients together."""

    clients: int
    worse: int
    least: int
    most: int


def worse_off(gains: Sequence[float], ends: Sequence[tuple[float, float] | None]) -> WorseOff:
    """Count the clients that lose by something.

    Parameters
    ----------
    gains : Sequence[float]
        What each client gains; a negative number is a loss.
    ends : Sequence[tuple[float, float], optional]
        The interval of each gain, None or NaN where there is none. If all hold the true gains at once with
        some probability, as intervals at `bonferroni` do, then so do ``least`` and ``most`` hold the number
        of clients that truly lose: at least those whose interval lies below 0, at most all but those whose
        interval lies above it.
    """
    known = [pair for pair in ends if pair is not None]
    least, gain = sum(high < 0 for _, high in known), sum(low > 0 for low, _ in known)
    return WorseOff(len(gains), sum(value < 0 for value in gains), least, len(gains) - gain)


def bonferroni(level: float, number: int) -> float:
    """Return the level of each of so many intervals at which all hold their values at ``level``."""
    return 1 - (1 - level) / max(1, number)

"""Tests between methods on the same cases, sites, data sets or seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .case_metrics import Auroc, CaseMetric, Share, mean_of_defined
from .cases import Cases, same_cases
from .delong import aurocs
from .intervals import DRAWS, LEVEL, drawn_weights, error_of_draws, of_pooled_and_sites

if TYPE_CHECKING:
    from pandas import DataFrame

K = TypeVar("K", bound=Hashable)
FEWEST_SEEDS = 5
FEWEST_EVENTS = 30
EXACT = 13  # differences, all of whose signs are enumerated
HALVINGS = 60  # of a distance of 2 at most, down to the rounding of floats
ROUNDING = 1e-9
"""Relative, of differences of floats."""


class Difference(NamedTuple):
    """The first method's value minus the second's, its interval, and the p-value of no difference."""

    difference: float
    low: float
    high: float
    p_value: float


NAN = float("nan")
Compare = Callable[[int, int, float], Difference]
"""The first method less the second, by their places, with an interval of this level."""


class McNemar(NamedTuple):
    """How many cases only the first, and only the second method has right, and two-sided p-values."""

    first_only: int
    second_only: int
    exact: float
    mid_p: float


def mcnemar(first_right: ArrayLike, second_right: ArrayLike) -> McNemar:
    """Return McNemar's test of the same cases under two methods, (n,) each: exact, and its mid-p variant.

    The mid-p variant is less conservative: M. Fagerland, S. Lydersen and P. Laake, The McNemar test for
    binary matched-pairs data, BMC Medical Research Methodology 13:91, 2013.
    """
    from scipy.stats import binom, binomtest

    first, second = np.asarray(first_right, bool), np.asarray(second_right, bool)
    b, c = int((first & ~second).sum()), int((second & ~first).sum())
    if not b + c:
        return McNemar(0, 0, 1.0, 1.0)
    exact = float(binomtest(b, b + c).pvalue)
    point = float(binom.pmf(b, b + c, 0.5))
    return McNemar(b, c, exact, exact - (point / 2 if b == c else point))


def score_test(first_right: ArrayLike, second_right: ArrayLike, level: float = LEVEL) -> Difference:
    """Return by how much the share of cases that are right differs, with Tango's score interval.

    The p-value is that of McNemar's test without a correction for continuity, the interval all differences
    that the same score test does not reject: T. Tango, Equivalence test and confidence interval for the
    difference in proportions for the paired-sample design, Statistics in Medicine 17(8), 1998.

    Parameters
    ----------
    first_right, second_right : ArrayLike
        Which of the same cases each method has right, (n,).
    level : float
        The confidence level.
    """
    from scipy.special import ndtr, ndtri

    first, second = np.asarray(first_right, bool), np.asarray(second_right, bool)
    n, b, c = len(first), int((first & ~second).sum()), int((second & ~first).sum())
    if not n:
        return Difference(NAN, NAN, NAN, NAN)
    found, quantile = (b - c) / n, float(ndtri((1 + level) / 2))

    def beyond(difference: float) -> float:
        """Return by how much the squared score exceeds its quantile's, times its variance."""
        linear = (2 * n - b + c) * difference - b - c
        root = math.sqrt(linear**2 + 8 * n * c * difference * (1 - difference))
        only_second = (root - linear) / (4 * n)  # its most likely share at this difference
        variance = max(0.0, n * (2 * only_second + difference * (1 - difference)))
        return (b - c - n * difference) ** 2 - quantile**2 * variance

    def end(outside: float) -> float:
        inside = found
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if beyond(middle) <= 0 else (inside, middle)
        return inside

    low, high = (limit if beyond(limit) <= 0 else end(limit) for limit in (-1.0, 1.0))
    p_value = 2 * float(ndtr(-abs(b - c) / math.sqrt(b + c))) if b + c else 1.0
    return Difference(found, low, high, p_value)


def delong_test(
    positive: ArrayLike,
    first: ArrayLike,
    second: ArrayLike,
    groups: ArrayLike | None = None,
    level: float = LEVEL,
) -> Difference:
    """Return DeLong's test of two AUROCs on the same cases; all are (n,). See `delong.aurocs`."""
    found = aurocs(positive, [np.asarray(first), np.asarray(second)], groups)
    deviation, freedom = found.error((1, -1))
    return by_students_t(float(found.areas[0] - found.areas[1]), deviation, freedom, level)


def by_students_t(difference: float, deviation: float, freedom: float, level: float) -> Difference:
    """Return interval and p-value by Student's t; without any deviation the p-value is 0 or 1."""
    from scipy.special import stdtr, stdtrit  # scipy.stats takes a second to load, and each call long

    error = deviation * float(stdtrit(freedom, (1 + level) / 2))
    p_value = 2 * float(stdtr(freedom, -abs(difference) / deviation)) if deviation else float(difference == 0)
    return Difference(difference, difference - error, difference + error, p_value)


def paired_bootstrap(
    first: DataFrame,
    second: DataFrame,
    metric: CaseMetric,
    seed: int = 0,
    over: Literal["pooled", "mean"] = "pooled",
    draws: int = DRAWS,
    level: float = LEVEL,
) -> Difference:
    """Return the difference of a metric on the same cases, by a bootstrap over groups within sites.

    Both methods have the same groups in each draw. Interval and p-value are by the standard deviation of the
    differences and Student's t. `same_cases` says what it refuses.

    Parameters
    ----------
    first, second : DataFrame
        See `Cases.of`, with a column ``id``; the rows may be in another order.
    metric : CaseMetric
        The metric.
    seed : int
        Of the draws.
    over : str
        ``pooled`` (all cases in one place) or ``mean`` (over the sites).
    draws : int
        How many draws.
    level : float
        The confidence level.
    """
    one, other = same_cases([first, second])

    def difference(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        tables = [of_pooled_and_sites(metric, cases, weights) for cases in (one, other)]
        if over == "pooled":
            return np.asarray(tables[0][0] - tables[1][0])
        return mean_of_defined(tables[0][1:]) - mean_of_defined(tables[1][1:])

    drawn = np.concatenate([difference(weights) for weights in drawn_weights(one, seed, draws)])
    value = float(difference(np.ones((1, len(one))))[0])
    return by_students_t(value, *error_of_draws(one, drawn), level)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return p-values that are adjusted for their number, float64 (m,), in the given order.

    S. Holm: A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6(2),
    1979.
    """
    found = np.asarray(p_values, np.float64)
    order = np.argsort(found, kind="stable")
    adjusted = np.empty(len(found))
    adjusted[order] = np.minimum(np.maximum.accumulate(found[order] * np.arange(len(found), 0, -1)), 1)
    return adjusted


def wilcoxon_against(values: Mapping[str, ArrayLike], reference: str) -> dict[str, float]:
    """Return the p-value of each method against the reference: Wilcoxon's signed ranks, Holm's correction.

    Differences of 0 are split between the signs, as J. Demšar recommends (Statistical comparisons of
    classifiers over multiple data sets, JMLR 7, 2006). Up to 13 values p-values are exact; with fewer than
    six none is below 0.05.

    Parameters
    ----------
    values : Mapping[str, ArrayLike]
        The values of each method over the same sites, data sets or seeds, (n,).
    reference : str
        The method that the others are compared with.
    """
    base = np.asarray(values[reference], np.float64)
    others = [name for name in values if name != reference]
    found = [_wilcoxon(np.asarray(values[name], np.float64) - base) for name in others]
    return dict(zip(others, holm(found).tolist(), strict=True))


def _wilcoxon(differences: NDArray[np.float64]) -> float:
    """Return the p-value of both sides. SciPy's of all signs is the same, in a thousand times as long."""
    from scipy.stats import rankdata, wilcoxon

    if not differences.any():
        return 1.0
    if len(differences) > EXACT or np.isnan(differences).any():
        return float(wilcoxon(differences, zero_method="zsplit").pvalue)
    ranks = rankdata(np.abs(differences))
    found = ranks[differences > 0].sum()
    sums = np.zeros(1)  # of the ranks that are positive, for all signs of what is not 0
    for rank in ranks[differences != 0]:
        sums = np.concatenate([sums, sums + rank])
    return min(1.0, 2 * float(min((sums <= found).mean(), (sums >= found).mean())))


class Ranks(NamedTuple):
    """The mean rank of each method, 1 for the best, Friedman's test, and Nemenyi's critical difference."""

    mean_ranks: NDArray[np.float64]
    statistic: float
    p_value: float
    critical_difference: float


def friedman(table: ArrayLike, higher_is_better: bool = True, level: float = LEVEL) -> Ranks:
    """Compare three or more methods over data sets by their ranks.

    Two methods differ if their mean ranks do so by the critical difference, which is for all pairs together.
    As in J. Demšar, JMLR 7, 2006, but the statistic is corrected for ties.

    Parameters
    ----------
    table : ArrayLike
        The values, (data sets, methods).
    higher_is_better : bool
        Whether high values get low ranks.
    level : float
        The confidence level of the critical difference.
    """
    from scipy.stats import friedmanchisquare, rankdata

    values = np.asarray(table, np.float64)
    found = friedmanchisquare(*values.T)
    ranks = rankdata(-values if higher_is_better else values, axis=1).mean(axis=0)
    difference = nemenyi_critical_difference(values.shape[1], len(values), level)
    return Ranks(ranks, float(found.statistic), float(found.pvalue), difference)


def nemenyi_critical_difference(methods: int, data_sets: int, level: float = LEVEL) -> float:
    """Return ``q sqrt(k (k + 1) / (6 N))``; q is the studentised range's quantile over the root of 2."""
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(level, methods, np.inf)) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * data_sets)))


@dataclass(frozen=True)
class Pairs(Generic[K]):
    """Methods of which each pair is compared: intervals hold, and p-values are, for all pairs together.

    Bonferroni's correction is for all pairs, not for those with the best alone: which one is best is found in
    the same values. An interval leaves 0 out if and only if its p-value is below one minus its level.

    Parameters
    ----------
    methods : Sequence[K]
        The methods, k.
    values : NDArray[np.float64]
        Their values, (k,).
    compare : Compare
        The comparison of a pair by itself. A p-value of NaN is that of a test that is undefined.
    """

    methods: Sequence[K]
    values: NDArray[np.float64]
    compare: Compare

    def of(self, first: int, second: int, level: float = LEVEL) -> Difference:
        """Return the first method less the second, by their places, corrected; p is 1 if it is undefined."""
        pairs = math.comb(len(self.methods), 2)
        found = self.compare(first, second, 1 - (1 - level) / pairs)
        return found._replace(p_value=1.0 if math.isnan(found.p_value) else min(1.0, pairs * found.p_value))

    def every(self, level: float = LEVEL) -> dict[tuple[K, K], Difference]:
        """Return the difference of each pair, in the order of the methods."""
        pairs = combinations(range(len(self.methods)), 2)
        return {(self.methods[i], self.methods[j]): self.of(i, j, level) for i, j in pairs}


class BestCells(NamedTuple, Generic[K]):
    """The cell with the best mean, the cells that cannot be told from it, itself included, and why none can.

    Without a reason the cells were tested, and all others have their differences from the best; with one
    nothing is known, and all are alike.
    """

    best: K
    alike: tuple[K, ...]
    reason: str
    behind: Mapping[K, Difference]


def cannot_be_told_from_best(
    values: Mapping[K, ArrayLike],
    higher_is_better: bool = True,
    events: int | None = None,
    level: float = LEVEL,
    resolution: float = 0.0,
) -> BestCells[K]:
    """Return which cells cannot be told from the one with the best mean.

    Each pair of cells has a paired t-test over the seeds (or data sets) that both have; see `Pairs`. So, of
    equal cells, one is told from the best in at most 5 % of sweeps. docs/results/differences.md has others.

    Parameters
    ----------
    values : Mapping[K, ArrayLike]
        Each cell's values over the same seeds in the same order, (n,); NaN where a run has none. A cell
        without any is left out.
    higher_is_better : bool
        Whether the best mean is the highest.
    events : int, optional
        How many held-out cases are of the rarer outcome, if that is known.
    level : float
        One minus the family-wise error.
    resolution : float
        See `paired_t_tests`.

    Raises
    ------
    ValueError
        When no cell has a value.
    """
    pairs = paired_t_tests(values, resolution)
    number = sorted(int((~np.isnan(np.asarray(values[cell], np.float64))).sum()) for cell in pairs.methods)
    reason = too_few(number[-min(2, len(number))], "seed", FEWEST_SEEDS)
    if events is not None:
        reason = too_few_events(events) or reason
    if reason:
        best = int(np.argmax(pairs.values if higher_is_better else -pairs.values))
        return BestCells(pairs.methods[best], tuple(pairs.methods), reason, {})
    return told_from_best(pairs, higher_is_better, level)


def told_from_best(pairs: Pairs[K], higher_is_better: bool = True, level: float = LEVEL) -> BestCells[K]:
    """Return which methods cannot be told from the one with the best value."""
    cells, best = pairs.methods, int(np.argmax(pairs.values if higher_is_better else -pairs.values))
    behind = {cell: pairs.of(i, best, level) for i, cell in enumerate(cells) if i != best}
    alike = tuple(cell for cell in cells if cell not in behind or behind[cell].p_value > 1 - level)
    return BestCells(cells[best], alike, "", behind)


def too_few(number: int, what: str, fewest: int, more: str = "") -> str:
    """Return that there are fewer than are needed; "" if there are enough."""
    if number >= fewest:
        return ""
    return f"only {number} {what}{'' if number == 1 else 's'}{more}; at least {fewest} are needed"


def too_few_events(events: int) -> str:
    """Return that fewer cases than are needed are not of the most frequent class; "" if there are enough."""
    return too_few(events, "held-out case", FEWEST_EVENTS, " outside the most frequent class")


def paired_t_tests(values: Mapping[K, ArrayLike], resolution: float = 0.0) -> Pairs[K]:
    """Return the pairs of cells, each compared by a paired t-test; undefined with fewer than five values.

    Parameters
    ----------
    values : Mapping[K, ArrayLike]
        See `cannot_be_told_from_best`.
    resolution : float
        What one held-out case changes a value by. Means that differ by no more are not told apart: with
        differences of single cases the t-test has too many false winners.

    Raises
    ------
    ValueError
        When no cell has a value.
    """
    table = {cell: row for cell in values if not np.isnan(row := np.asarray(values[cell], np.float64)).all()}
    if not table:
        raise ValueError("no cell has a value")
    rows, least = list(table.values()), resolution * (1 + ROUNDING)

    def compare(first: int, second: int, level: float) -> Difference:
        both = rows[first] - rows[second]
        both = both[~np.isnan(both)]
        if len(both) < FEWEST_SEEDS:
            return Difference(NAN, NAN, NAN, NAN)
        mean, error = float(both.mean()), float(both.std(ddof=1)) / math.sqrt(len(both))
        found = by_students_t(mean, error, len(both) - 1, level)
        if abs(mean) <= least:
            found = found._replace(p_value=1.0)
        return found._replace(low=min(found.low, mean - least), high=max(found.high, mean + least))

    return Pairs(list(table), np.array([np.nanmean(row) for row in rows]), compare)


def wilcoxon_tests(methods: Sequence[K], rows: NDArray[np.float64], values: NDArray[np.float64]) -> Pairs[K]:
    """Return the pairs of methods with such values, (k,), each compared by the signed ranks of its rows.

    The rows are (k, n), see `wilcoxon_against`. There are no intervals.
    """

    def compare(first: int, second: int, level: float) -> Difference:
        return Difference(values[first] - values[second], NAN, NAN, _wilcoxon(rows[first] - rows[second]))

    return Pairs(methods, values, compare)


MCNEMAR, DELONG = "McNemar's test", "DeLong's test"
BOOTSTRAP = "paired bootstrap over {} within sites"


class CaseTests(NamedTuple):
    """The test in words, and what it says of each pair of methods, by their places."""

    test: str
    pairs: Pairs[int]


def compare_on_cases(
    frames: Sequence[DataFrame], metric: CaseMetric, seed: int = 0, draws: int = DRAWS
) -> CaseTests:
    """Compare each pair of methods on the same cases.

    A share of cases, each a group by itself, has McNemar's test and Tango's interval, an AUROC of two classes
    DeLong's (with Obuchowski's variance for groups), any other metric a paired bootstrap over groups within
    sites. The test is undefined without cases of a class. `same_cases` says what it refuses.

    Parameters
    ----------
    frames : Sequence[DataFrame]
        The cases of each method; see `same_cases`.
    metric : CaseMetric
        The metric, of all cases in one place.
    seed : int
        Of the bootstrap's draws.
    draws : int
        How many draws.
    """
    methods = same_cases(frames)
    values = np.array([metric.value(cases) for cases in methods])
    singly = len(np.unique(methods[0].in_groups)) == len(methods[0])
    test, compare = (
        _mcnemar(methods, metric, singly)
        or _delong(methods, metric)
        or _bootstrap(methods, metric, values, seed, draws)
    )
    units = "cases" if singly else "groups"
    return CaseTests(test.format(units), Pairs(range(len(methods)), values, compare))


def _mcnemar(methods: Sequence[Cases], metric: CaseMetric, singly: bool) -> tuple[str, Compare] | None:
    if not isinstance(metric, Share) or not singly:
        return None
    hits, counts = zip(*map(metric.arrays, methods), strict=True)
    if not all(np.array_equal(counts[0], other) for other in counts):
        return None
    return MCNEMAR, lambda i, j, level: score_test(hits[i][counts[0]], hits[j][counts[0]], level)


def _delong(methods: Sequence[Cases], metric: CaseMetric) -> tuple[str, Compare] | None:
    if not isinstance(metric, Auroc) or len(metric.pairs(methods[0])) > 1:
        return None
    truths, scores = zip(*(metric.pairs(cases)[0] for cases in methods), strict=True)
    found = aurocs(truths[0], np.stack(scores), methods[0].in_groups)

    def compare(i: int, j: int, level: float) -> Difference:
        contrast = np.eye(len(methods))[i] - np.eye(len(methods))[j]
        return by_students_t(float(found.areas[i] - found.areas[j]), *found.error(contrast), level)

    return DELONG, compare


def _bootstrap(
    methods: Sequence[Cases], metric: CaseMetric, values: NDArray[np.float64], seed: int, draws: int
) -> tuple[str, Compare]:
    blocks = drawn_weights(methods[0], seed, draws)
    drawn = [np.stack([metric(cases, weights) for cases in methods]) for weights in blocks]
    of_all = np.concatenate(drawn, axis=1)

    def compare(i: int, j: int, level: float) -> Difference:
        error = error_of_draws(methods[0], of_all[i] - of_all[j])
        return by_students_t(float(values[i] - values[j]), *error, level)

    return BOOTSTRAP, compare

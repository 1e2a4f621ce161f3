"""Intervals of metrics: Wilson's, DeLong's, Boyd's, and by a bootstrap over groups within sites.

``benchmarks/intervals.py`` measures how often they hold the true value: see docs/results/intervals.md.

The expected calibration error has a test in the place of an interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...records.cases import ID
from .case_metrics import METRICS, Auroc, CaseMetric, Mean, Share, is_average_precision
from .cases import Cases
from .delong import aurocs

if TYPE_CHECKING:
    from pandas import DataFrame

DRAWS, LEVEL = 1000, 0.95
WEIGHTS_AT_A_TIME = 4_000_000
COUNTS_KEPT = 500_000
"""Of so many counts at most, 4 MB, the draws are kept for the next cases of as many groups."""
NAN = float("nan")
PRIOR_GROUPS, PRIOR_SHARE = 6, 0.75
"""See `by_groups`; chosen by simulation, as the least with which few events hold."""
FEWEST_OF_A_CLASS, FEWEST_OF_LONG_TAILS = 5, 30
"""How many groups of each class, or of numbers without a bound, intervals by bootstrap take: with fewer, some
hold in less than 90 % of the draws of ``benchmarks/intervals.py``."""
LARGEST = 700.0
"""Of an exponent."""
GROUPED, BINOMIAL = "Wilson, effective cases", "logit, binomial"


class Interval(NamedTuple):
    """A metric's value, its interval, NaN where there is none, and how that was computed."""

    value: float
    low: float
    high: float
    method: str

    @property
    def text(self) -> str:
        """The value and, if there is one, its interval: ``0.912 (0.871 to 0.940)``."""
        ends = "" if math.isnan(self.low) else f" ({self.low:.3f} to {self.high:.3f})"
        return f"{self.value:.3f}{ends}"


NOTHING = Interval(NAN, NAN, NAN, "")


def without(value: float, fewest: int, of_classes: bool) -> Interval:
    """Return a value that has no interval, and why: it takes so many cases, or so many of each class."""
    what, each = ("events", " of each class") if of_classes else ("cases", "")
    return Interval(value, NAN, NAN, f"Too few {what} for an interval (it takes {fewest}{each})")


def exact(hits: int, cases: int, level: float = LEVEL) -> Interval:
    """Return the exact interval of a share, of cases that do not depend on each other.

    C. Clopper and E. Pearson: The use of confidence or fiducial limits illustrated in the case of the
    binomial. Biometrika 26(4), 1934.

    Raises
    ------
    ValueError
        Without cases, or with more hits than cases.
    """
    from scipy.special import (
        betaincinv,
    )  # the quantile of the beta distribution; scipy.stats loads for a second

    if not 0 <= hits <= cases or not cases:
        raise ValueError(f"{hits} hits of {cases} cases are not a share")
    tail = (1 - level) / 2
    low = float(betaincinv(hits, cases - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, cases - hits, 1 - tail)) if hits < cases else 1.0
    return Interval(hits / cases, low, high, "Clopper-Pearson")


class Part(NamedTuple):
    """A part of the variance of a share or of an AUROC A: what it is by groups, of how many, and at most.

    ``most`` is the variance over A (1 - A) if all cases of a group are alike, and each is worth 0 or 1: the
    sum of the squares of the groups' sizes over the square of their sum.
    """

    variance: float
    groups: int
    most: float


def by_groups(
    value: float, parts: Sequence[Part], level: float, method: str, covariance: float = 0.0
) -> Interval:
    """Return Wilson's score interval of as many cases as have the same variance, with Student's t.

    Few groups do not know their variance: each part is averaged with `PRIOR_SHARE` of the greatest possible
    one, which counts as that of `PRIOR_GROUPS` groups. The sum has Satterthwaite's degrees of freedom. NaN
    where a part has fewer than two groups.

    E. Wilson: Probable inference, the law of succession, and statistical inference. JASA 22(158), 1927. An
    effective number of cases as in E. Korn and B. Graubard: Confidence intervals for proportions with small
    expected number of positive counts estimated from survey data. Survey Methodology 24(2), 1998.
    """
    spread = value * (1 - value)
    if math.isnan(value) or min(part.groups for part in parts) < 2:
        return without(value, 2, of_classes=len(parts) > 1)
    expected = [PRIOR_SHARE * part.most for part in parts]
    found = [part.variance / spread if spread else e for part, e in zip(parts, expected, strict=True)]
    freedom = [PRIOR_GROUPS + part.groups - 1 for part in parts]
    each = [
        (PRIOR_GROUPS * e + (part.groups - 1) * f) / number
        for e, f, part, number in zip(expected, found, parts, freedom, strict=True)
    ]
    whole = sum(each) + (covariance / spread if spread else 0.0)
    t = _quantile(sum(each) ** 2 / sum(e**2 / number for e, number in zip(each, freedom, strict=True)), level)
    wide = t**2 * max(whole, 0.0)
    centre, half = value + wide / 2, math.sqrt(spread * wide + wide**2 / 4)
    low, high = ((centre + side * half) / (1 + wide) for side in (-1, 1))
    return Interval(value, max(0.0, min(value, low)), min(1.0, max(value, high)), method)  # rounded, too


def share(hits: NDArray, groups: NDArray, level: float = LEVEL) -> Interval:
    """Return the interval of a share of cases, (n,), in groups, (n,): exact if each is one by itself.

    See `exact`, and else `by_groups`.
    """
    if not len(hits):
        return NOTHING
    sizes, sums = (np.bincount(np.unique(groups, return_inverse=True)[1], w) for w in (None, hits))
    if sizes.max() == 1:
        return exact(int(hits.sum()), len(hits), level)
    value, number = float(hits.mean()), len(sizes)
    squares = ((sums - value * sizes) ** 2).sum() * number / max(1, number - 1)
    part = Part(float(squares) / len(hits) ** 2, number, float((sizes**2).sum()) / len(hits) ** 2)
    return by_groups(value, [part], level, GROUPED)


def delong(
    positive: ArrayLike, scores: ArrayLike, groups: ArrayLike | None = None, level: float = LEVEL
) -> Interval:
    """Return the interval of an AUROC by DeLong's variance, from positive and from negative cases.

    See `by_groups`. The greatest variance from m positive cases is A (1 - A) / m: Z. Birnbaum and O. Klose,
    Bounds for the variance of the Mann-Whitney statistic, Annals of Mathematical Statistics 28(4), 1957.

    Parameters
    ----------
    positive, scores : ArrayLike
        Which cases are positive and their scores, (n,).
    groups : ArrayLike, optional
        The group of each case, int (n,).
    """
    found = aurocs(positive, scores, groups)
    variances = found.parts[:, 0, 0].tolist()
    parts = [Part(*each) for each in zip(variances[:2], found.groups, found.most, strict=True)]
    return by_groups(float(found.areas[0]), parts, level, "DeLong", variances[2])


def average_precision(value: float, events: int, level: float) -> Interval:
    """Return the interval of an average precision A: symmetric on log-odds, with the variance A (1 - A) / m.

    It has m patients (groups) of the rarer class. With few of them it is too good, by more than a bootstrap
    knows, so that the greatest variance is taken.
    K. Boyd, K. Eng and C. Page: Area under the precision-recall curve: point estimates and confidence
    intervals. ECML PKDD 2013. With Student's t, where they have the normal distribution.
    """
    if math.isnan(value) or events < FEWEST_OF_A_CLASS:
        return without(value, FEWEST_OF_A_CLASS, of_classes=True)
    error = _quantile(events - 1, level) * math.sqrt(value * (1 - value) / events)
    return _between_bounds(value, error, events, (0.0, 1.0), level, BINOMIAL)


def _between_bounds(
    value: float, error: float, independent: int, bounds: tuple[float, float], level: float, method: str
) -> Interval:
    """Return the interval that is symmetric on a scale on which the metric has no bounds.

    That is the log-odds of its place between two bounds, or the logarithm of its distance from one. At one of
    two bounds it is `exact`, of so many independent cases.
    """
    from scipy.special import expit, logit

    low, high = bounds
    if math.isnan(value) or math.isnan(error) or not independent:
        return Interval(value, NAN, NAN, method)
    if math.isinf(low) and math.isinf(high):
        return Interval(value, value - error, value + error, method)
    if math.isinf(low):
        flipped = _between_bounds(-value, error, independent, (-high, math.inf), level, method)
        return Interval(value, -flipped.high, -flipped.low, method)
    distance, size = value - low, high - low
    if math.isinf(size):
        factor = math.exp(min(error / distance, LARGEST)) if distance > 0 else NAN
        return Interval(value, low + distance / factor, low + distance * factor, method)
    place = distance / size
    if not 0 < place < 1:
        edge = exact(round(place * independent), independent, level)
        return Interval(value, low + size * edge.low, low + size * edge.high, method)
    width = error / size / (place * (1 - place))
    ends = low + size * expit(logit(place) + np.array([-width, width]))
    return Interval(value, float(ends[0]), float(ends[1]), method)


def drawn_weights(cases: Cases, seed: int, draws: int) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of draws: how often each case counts, float64 (rows, n), in all ``draws`` rows.

    Of the G groups of a site, G - 1 are drawn with replacement, and each counts G / (G - 1) times, so that
    variances are not too small: J. Rao and C. Wu, Resampling inference with complex survey data, JASA
    83(401), 1988. A site of one group is as it is in every draw.
    """
    sizes = tuple(int(cases.groups[part].max()) + 1 for part in cases.parts)
    rng = np.random.default_rng(seed)
    rows = max(1, WEIGHTS_AT_A_TIME // max(1, len(cases)))
    keeps = draws <= rows and sum(sizes) * draws <= COUNTS_KEPT
    for start in range(0, draws, rows):
        count = min(rows, draws - start)
        drawn = _kept_counts(sizes, seed, draws) if keeps else _counts(rng, sizes, count)
        weights = np.ones((count, len(cases)))
        for part, number, of_groups in zip(cases.parts, sizes, drawn, strict=True):
            if number > 1:
                weights[:, part] = (of_groups * (number / (number - 1)))[:, cases.groups[part]]
        yield weights


def _counts(rng: np.random.Generator, sizes: tuple[int, ...], draws: int) -> list[NDArray[np.int64]]:
    """Return how often each group of each site is drawn, ``draws`` rows for each site."""
    return [
        rng.multinomial(size - 1, np.full(size, 1 / size), size=draws)
        if size > 1
        else np.ones((draws, 1), np.int64)
        for size in sizes
    ]


@lru_cache(maxsize=4)  # clients with as many cases each, or with the same ones, are drawn alike
def _kept_counts(sizes: tuple[int, ...], seed: int, draws: int) -> list[NDArray[np.int64]]:
    """Return `_counts` from the seed."""
    return _counts(np.random.default_rng(seed), sizes, draws)


def intervals(
    frame: DataFrame,
    metrics: Mapping[str, CaseMetric] = METRICS,
    seed: int = 0,
    draws: int = DRAWS,
    level: float = LEVEL,
) -> dict[str, dict[str, Interval] | dict[str, dict[str, Interval]]]:
    """Return the interval of each metric: ``pooled``, ``mean`` (over the sites), ``clients`` (by site).

    Shares of single cases are exact, AUROCs of two classes DeLong's, average precisions Boyd's. All else is
    by bootstrap: the standard deviation of the draws times a quantile of Student's t, on a scale without
    bounds (see `CaseMetric.bounds`). A metric that is undefined is missing; the mean is over the sites that
    have it.

    Parameters
    ----------
    frame : DataFrame
        See `Cases.of`.
    metrics : Mapping[str, CaseMetric]
        The metrics by name.
    seed : int
        Of the draws.
    draws : int
        How many draws.
    level : float
        The confidence level.

    Raises
    ------
    ValueError
        See `Cases.of`.
    """
    return intervals_of_cases(Cases.of(frame), metrics, seed, draws, level)


def intervals_of_cases(
    cases: Cases,
    metrics: Mapping[str, CaseMetric],
    seed: int,
    draws: int = DRAWS,
    level: float = LEVEL,
) -> dict[str, dict[str, Interval] | dict[str, dict[str, Interval]]]:
    """Return the intervals of cases that are no table any more; see `intervals`."""
    drawn: dict[str, list[NDArray[np.float64]]] = {
        name: [] for name, metric in metrics.items() if by_formula(metric, cases, level) is None
    }
    for weights in drawn_weights(cases, seed, draws) if drawn else ():
        for name, blocks in drawn.items():
            blocks.append(of_pooled_and_sites(metrics[name], cases, weights))
    pooled, mean, clients = {}, {}, {site: {} for site in cases.sites}  # type: ignore[var-annotated]
    for name, metric in metrics.items():
        rows = np.concatenate(drawn[name], axis=1) if name in drawn else [None] * (1 + len(cases.sites))
        whole, *of_sites = (_interval(metric, *of, level) for of in zip([cases, *cases], rows, strict=True))
        defined = {s: of for s, of in zip(cases.sites, of_sites, strict=True) if not math.isnan(of.value)}
        if not math.isnan(whole.value):
            pooled[name] = whole
        if defined:
            mean[name] = _mean([*defined.values()])
        for site, of in defined.items():
            clients[site][name] = of
    return {"pooled": pooled, "mean": mean, "clients": clients}


def of_pooled_and_sites(
    metric: CaseMetric, cases: Cases, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return a metric of all cases, then of each site's, float64 (1 + sites, draws)."""
    pooled = metric(cases, weights)
    if len(cases.sites) == 1:
        return np.stack([pooled, pooled])
    of_sites = (metric(site, weights[:, part]) for site, part in zip(cases, cases.parts, strict=True))
    return np.stack([pooled, *of_sites])


def by_formula(metric: CaseMetric, cases: Cases, level: float = LEVEL) -> Interval | None:
    """Return the interval of a share, an AUROC of two classes, or an average precision; None of others."""
    if isinstance(metric, Share):
        hits, counts = metric.arrays(cases)
        return share(hits[counts], cases.in_groups[counts], level)
    if isinstance(metric, Auroc) and len(classes := metric.pairs(cases)) == 1:
        return delong(*classes[0], cases.in_groups, level)
    if is_average_precision(metric):
        return average_precision(metric.value(cases), _events(cases, rarest=True), level)
    return None


def _interval(metric: CaseMetric, cases: Cases, drawn: NDArray[np.float64] | None, level: float) -> Interval:
    """Return the interval of one site's cases, or of all: from the draws, or by formula without them."""
    if drawn is None:
        return by_formula(metric, cases, level) or NOTHING
    value = metric.value(cases)
    is_open = any(map(math.isinf, metric.bounds))  # so that few cases may make most of it
    fewest = FEWEST_OF_A_CLASS if metric.of_classes else FEWEST_OF_LONG_TAILS if is_open else 2
    is_mean = isinstance(metric, Mean)
    number = _events(cases, not is_mean) if metric.of_classes else len(np.unique(cases.in_groups))
    if number < fewest:
        return without(value, fewest, metric.of_classes)
    deviation, freedom = error_of_draws(cases, drawn)
    if metric.of_classes and not is_mean:
        return by_groups(value, [Part(deviation**2, number, 1 / number)], level, "bootstrap")
    error = deviation * _quantile(freedom, level)
    return _between_bounds(value, error, freedom + len(cases.sites), metric.bounds, level, "bootstrap")


def _events(cases: Cases, rarest: bool) -> int:
    """Return of how many groups the rarest of the classes has cases, or all but the most frequent one."""
    pairs = np.unique(np.stack([cases.targets, cases.in_groups]), axis=1)
    counts = np.unique(pairs[0], return_counts=True)[1]
    if len(counts) < 2:
        return 0
    return int(counts.min() if rarest else counts.sum() - counts.max())


def _mean(of: Sequence[Interval]) -> Interval:
    """Return the interval of the mean of independent values from theirs.

    G. Zou and A. Donner: Construction of confidence limits about effect measures: a general approach.
    Statistics in Medicine 27(10), 2008.
    """
    value, low, high = np.array([one[:3] for one in of]).T
    method = next((one.method for one in of if math.isnan(one.low)), "square and add")
    centre = value.mean()
    below, above = (np.sqrt(((end - value) ** 2).sum()) / len(of) for end in (low, high))
    return Interval(float(centre), float(centre - below), float(centre + above), method)


def _quantile(freedom: float, level: float) -> float:
    """Return how many standard errors an interval has to each side, by Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2)) if freedom > 0 else NAN


def error_of_draws(cases: Cases, drawn: NDArray[np.float64]) -> tuple[float, int]:
    """Return the standard error of a metric, and its degrees of freedom: groups less sites.

    The error is NaN where no site has two groups, or where fewer than two draws have the metric.
    """
    freedom = len(np.unique(cases.in_groups)) - len(cases.sites)
    found = drawn[~np.isnan(drawn)]
    return (float(found.std(ddof=1)) if freedom and len(found) > 1 else NAN), freedom


def has_shared_cases(table: DataFrame) -> bool:
    """Return whether several sites have the same cases."""
    return bool(table[ID].duplicated().any())


CASES_AT_A_TIME = 4_000_000


class Calibration(NamedTuple):
    """The ECE, what it would be on the same cases if the model were calibrated, and the p-value of that.

    The mean over bins of how far shares lie from probabilities is above 0 of any model: shares of few cases
    lie apart from any probability. So it has no interval, but is compared with that of a calibrated model:
    J. Bröcker and L. Smith, Increasing the reliability of reliability diagrams, Weather and Forecasting
    22(3), 2007.
    """

    ece: float
    expected: float
    """The mean of a calibrated model's."""
    most: float
    """The quantile of a calibrated model's, by default that of 95 %."""
    p_value: float


def calibration_test(
    cases: Cases, bins: int, seed: int = 0, draws: int = DRAWS, level: float = LEVEL
) -> Calibration:
    """Return the ECE over equal bins, and that of outcomes drawn with the predicted probabilities.

    Of two classes the probability is that of class 1, of several the greatest, and the outcome whether that
    class is right. Cases of a group have one random number, so that they are as alike as their probabilities
    allow: with groups the test is conservative.

    Parameters
    ----------
    cases : Cases
        The cases, whose scores are probabilities.
    bins : int
        Into how many parts the probabilities are divided; a bin includes its upper end.
    seed : int
        Of the draws.
    draws : int
        How many draws.
    level : float
        Of `Calibration.most`.
    """
    scores, hits = cases.scores, cases.targets
    if scores.ndim == 2 and scores.shape[1] == 2:
        scores = scores[:, 1]
    elif scores.ndim == 2:
        scores, hits = scores.max(axis=1), scores.argmax(axis=1) == cases.targets
    edges = np.linspace(0, 1, bins + 1)[1:-1]
    member = np.eye(bins)[np.searchsorted(edges, scores)]
    codes = np.unique(cases.in_groups, return_inverse=True)[1]
    rng = np.random.default_rng(seed)

    def ece(outcomes: NDArray) -> NDArray[np.float64]:
        return np.asarray(np.abs((outcomes - scores) @ member).sum(axis=1) / len(scores))

    found = float(ece(np.asarray(hits, np.float64)[None])[0])
    rows = max(1, CASES_AT_A_TIME // len(scores))
    drawn = np.concatenate(
        [
            ece(rng.random((min(rows, draws - start), codes.max() + 1))[:, codes] < scores)
            for start in range(0, draws, rows)
        ]
    )
    beyond = 1 + int((drawn >= found - 1e-12).sum())
    return Calibration(found, float(drawn.mean()), float(np.quantile(drawn, level)), beyond / (1 + draws))

"""Intervals of metrics: Wilson's, DeLong's, and by a bootstrap over groups within sites.

``benchmarks/coverage.py`` measures how often they hold the true value; docs/statistics.md has the table.
"""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .case_metrics import METRICS, Auroc, CaseMetric, Share, mean_of_defined
from .cases import Cases
from .delong import aurocs

if TYPE_CHECKING:
    from pandas import DataFrame

DRAWS, LEVEL = 1000, 0.95
WEIGHTS_AT_A_TIME = 4_000_000
COUNTS_KEPT = 500_000
"""Of so many counts at most, 4 MB, the draws are kept for the next cases of as many groups."""
NAN = float("nan")


class Interval(NamedTuple):
    """A metric's value, its interval, NaN where there is none, and how that was computed."""

    value: float
    low: float
    high: float
    method: str


def wilson(hits: int, cases: int, level: float = LEVEL) -> Interval:
    """Return Wilson's score interval of a share, of cases that do not depend on each other.

    E. Wilson: Probable inference, the law of succession, and statistical inference. JASA 22(158), 1927.

    Raises
    ------
    ValueError
        Without cases, or with more hits than cases.
    """
    from scipy.special import ndtri  # SciPy's own Wilson interval is in scipy.stats, which loads for a second

    if not 0 <= hits <= cases or not cases:
        raise ValueError(f"{hits} hits of {cases} cases are not a share")
    share, z = hits / cases, float(ndtri((1 + level) / 2))
    centre, shrunk = (share + z**2 / (2 * cases)), 1 + z**2 / cases
    half = z * math.sqrt(share * (1 - share) / cases + z**2 / (4 * cases**2))
    low = (centre - half) / shrunk if hits else 0.0
    high = (centre + half) / shrunk if hits < cases else 1.0
    return Interval(share, low, high, "Wilson")


def delong(
    positive: ArrayLike, scores: ArrayLike, groups: ArrayLike | None = None, level: float = LEVEL
) -> Interval:
    """Return the interval of an AUROC by DeLong's variance, on the scale of its log-odds.

    For the log-odds see M. Pepe: The Statistical Evaluation of Medical Tests for Classification and
    Prediction, 2003, chapter 5. An AUROC of 0 or 1 has a variance of 0: there the interval is Wilson's of as
    many cases as there are groups with positive, or with negative, cases, whichever are fewer.

    Parameters
    ----------
    positive, scores : ArrayLike
        Which cases are positive and their scores, (n,).
    groups : ArrayLike, optional
        The group of each case, int (n,).
    """
    found = aurocs(positive, scores, groups)
    deviation, freedom = found.error()
    error = deviation * _quantile(freedom, level)
    return _between_bounds(float(found.areas[0]), error, min(found.groups), (0.0, 1.0), level, "DeLong")


def _between_bounds(
    value: float, error: float, independent: int, bounds: tuple[float, float], level: float, method: str
) -> Interval:
    """Return the interval that is symmetric on a scale on which the metric has no bounds.

    That is the log-odds of its place between two bounds, or the logarithm of its distance from one. At one of
    two bounds it is Wilson's, of so many independent cases.
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
        factor = math.exp(error / distance) if distance > 0 else NAN
        return Interval(value, low + distance / factor, low + distance * factor, method)
    place = distance / size
    if not 0 < place < 1:
        edge = wilson(round(place * independent), independent, level)
        return Interval(value, low + size * edge.low, low + size * edge.high, method)
    width = error / size / (place * (1 - place))
    ends = low + size * expit(logit(place) + np.array([-width, width]))
    return Interval(value, float(ends[0]), float(ends[1]), method)


def drawn_weights(cases: Cases, seed: int, draws: int = DRAWS) -> Iterator[NDArray[np.float64]]:
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
    frame: "DataFrame",
    metrics: Mapping[str, CaseMetric] = METRICS,
    seed: int = 0,
    draws: int = DRAWS,
    level: float = LEVEL,
) -> dict[str, dict[str, Interval] | dict[str, dict[str, Interval]]]:
    """Return the interval of each metric: ``pooled``, ``mean`` (over the sites), ``clients`` (by site).

    Shares of single cases are Wilson's, AUROCs of two classes DeLong's. All else is by bootstrap: the
    standard deviation of the draws times a quantile of Student's t, on a scale without bounds (see
    `CaseMetric.bounds`). A metric that is undefined is missing; the mean is over the sites that have it.

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
    seed: int = 0,
    draws: int = DRAWS,
    level: float = LEVEL,
) -> dict[str, dict[str, Interval] | dict[str, dict[str, Interval]]]:
    """Return the intervals of cases that are no table any more; see `intervals`."""
    drawn: dict[str, list[NDArray[np.float64]]] = {name: [] for name in metrics}
    for weights in drawn_weights(cases, seed, draws):
        for name, metric in metrics.items():
            drawn[name].append(of_pooled_and_sites(metric, cases, weights))
    pooled, mean, clients = {}, {}, {site: {} for site in cases.sites}  # type: ignore[var-annotated]
    for name, metric in metrics.items():
        table = np.concatenate(drawn[name], axis=1)
        values = of_pooled_and_sites(metric, cases, np.ones((1, len(cases))))[:, 0]
        defined = ~np.isnan(values[1:])
        if not math.isnan(values[0]):
            pooled[name] = _interval(metric, cases, values[0], table[0], level)
        if defined.any():
            mean[name] = _by_draws(
                metric, cases, float(values[1:][defined].mean()), mean_of_defined(table[1:][defined]), level
            )
        for site, value, row in zip(cases, values[1:], table[1:], strict=True):
            if not math.isnan(value):
                clients[site.sites[0]][name] = _interval(metric, site, value, row, level)
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


def _interval(
    metric: CaseMetric, cases: Cases, value: float, drawn: NDArray[np.float64], level: float
) -> Interval:
    """Return the interval of one site's cases, or of all, by the formula that there is, else by the draws."""
    groups = cases.in_groups
    if isinstance(metric, Share) and len(np.unique(groups)) == len(cases):
        hits, counts = metric.arrays(cases)
        return wilson(int(hits.sum()), int(counts.sum()), level)
    if isinstance(metric, Auroc) and len(classes := metric.pairs(cases)) == 1:
        return delong(*classes[0], groups, level)
    return _by_draws(metric, cases, value, drawn, level)


def _by_draws(
    metric: CaseMetric, cases: Cases, value: float, drawn: NDArray[np.float64], level: float
) -> Interval:
    deviation, freedom = error_of_draws(cases, drawn)
    error = deviation * _quantile(freedom, level)
    groups = freedom + len(cases.sites)
    return _between_bounds(float(value), error, groups, metric.bounds, level, "bootstrap")


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

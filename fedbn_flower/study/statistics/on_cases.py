"""Which of several methods differ on the same held-out cases: each pair by the test that the metric has."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .case_metrics import Auroc, CaseMetric, Share
from .cases import Cases, same_cases
from .delong import aurocs
from .intervals import DRAWS, drawn_weights, error_of_draws
from .paired import Compare, Difference, Pairs, by_students_t, score_test

if TYPE_CHECKING:
    from pandas import DataFrame

MCNEMAR, DELONG = "McNemar's test", "DeLong's test"
BOOTSTRAP = "paired bootstrap over {} within sites"


class CaseTests(NamedTuple):
    """The test in words, and what it says of each pair of methods, by their places."""

    test: str
    pairs: Pairs[int]


def compare_on_cases(
    frames: "Sequence[DataFrame]", metric: CaseMetric, seed: int = 0, draws: int = DRAWS
) -> CaseTests:
    """Compare each pair of methods on the same cases.

    A share of cases, each a group by itself, has McNemar's test and Tango's interval, an AUROC of two classes
    DeLong's (with Obuchowski's variance for groups), any other metric a paired bootstrap over groups within
    sites. The test is undefined without cases of a class.

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

    Raises
    ------
    ValueError
        See `same_cases`.
    """
    methods = same_cases(frames)
    values = np.array([metric.value(cases) for cases in methods])
    test, compare = (
        _mcnemar(methods, metric)
        or _delong(methods, metric)
        or _bootstrap(methods, metric, values, seed, draws)
    )
    return CaseTests(test, Pairs(range(len(methods)), values, compare))


def _mcnemar(methods: Sequence[Cases], metric: CaseMetric) -> tuple[str, Compare] | None:
    if not isinstance(metric, Share) or not _are_single(methods[0]):
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
    drawn = np.concatenate(
        [np.stack([metric(cases, weights) for cases in methods]) for weights in blocks], axis=1
    )

    def compare(i: int, j: int, level: float) -> Difference:
        error = error_of_draws(methods[0], drawn[i] - drawn[j])
        return by_students_t(float(values[i] - values[j]), *error, level)

    return BOOTSTRAP.format("cases" if _are_single(methods[0]) else "groups"), compare


def _are_single(cases: Cases) -> bool:
    """Return whether each case is a group by itself."""
    return len(np.unique(cases.in_groups)) == len(cases)

"""Subgroups of cases: counts that add up, Newcombe's table of differences, and how often intervals hold."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from fedbn_flower.records.metrics import jain
from fedbn_flower.study.statistics.case_metrics import METRICS, Mean
from fedbn_flower.study.statistics.intervals import Interval, exact
from fedbn_flower.study.statistics.subgroups import (
    Subgroup,
    bonferroni,
    difference,
    gap,
    level_of_pairs,
    pairs_of,
    subgroups,
    worse_off,
    worst,
)

ACCURACY = {"accuracy": METRICS["accuracy"]}


def cases(right, target, **columns):
    """Cases that are right or not, at a site unless told otherwise."""
    score = np.where(np.asarray(right, bool), target, 1 - np.asarray(target)).astype(float)
    return pd.DataFrame(
        {"site": "here", "id": np.arange(len(score)), "target": target, "score": score} | columns
    )


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
    ],
)
def test_the_difference_of_shares_is_that_of_newcombes_table(one, other, low, high):
    """R. Newcombe, Interval estimation for the difference between independent proportions, Statistics in
    Medicine 17, 1998, table II, method 10."""
    of_wilson = (binomtest(*each).proportion_ci(method="wilson") for each in (one, other))
    first, second = (
        Interval(hits / n, *ends, "")
        for (hits, n), ends in zip((one, other), ((o.low, o.high) for o in of_wilson), strict=True)
    )
    found = difference(first, second)
    assert found[0] == pytest.approx(one[0] / one[1] - other[0] / other[1])
    assert found[1:] == pytest.approx((low, high), abs=1e-4)


def test_by_hand():
    """40 of f, of whom 30 are right, 50 of m, of whom 45 are, and ten of whom nothing is known."""
    right = [1] * 30 + [0] * 10 + [1] * 45 + [0] * 5 + [1] * 10
    target = np.arange(100) % 2
    words = pd.Series(["f"] * 40 + ["m"] * 50 + [None] * 10)
    found = subgroups(cases(right, target), words, ACCURACY, binary=True)
    assert [(one.name, one.cases, one.events) for one in found] == [("f", 40, 20), ("m", 50, 25), ("", 10, 5)]
    assert [one.is_compared for one in found] == [True, True, False]
    for one, (hits, n) in zip(found, [(30, 40), (45, 50)], strict=False):
        ends = binomtest(hits, n).proportion_ci(0.95, "exact")
        assert one.metrics["accuracy"][:3] == pytest.approx((hits / n, ends.low, ends.high), rel=1e-9)
        assert one.sites["here"].metrics == one.metrics  # of the only site
    assert found[2].metrics == {}
    assert worst({"sex": found}, "accuracy", True) == ("sex", found[0])
    assert worst({"sex": found}, "accuracy", False) == ("sex", found[1])
    between = gap(found, "accuracy")
    assert between[:2] == ("m", "f")
    assert between[2:5] == pytest.approx(difference(exact(45, 50), exact(30, 40)))
    assert between.pairs == 1


@pytest.mark.parametrize(
    ("n", "events", "enough"),
    [(30, None, True), (29, None, False), (30, 5, True), (30, 4, False), (300, 296, False), (300, 295, True)],
)
def test_of_few_cases_nothing_is_said(n, events, enough):
    target = np.zeros(n, int) if events is None else (np.arange(n) < events).astype(int)
    words = pd.Series(["a"] * n)
    (found,) = subgroups(cases(np.ones(n), target), words, ACCURACY, binary=events is not None)
    assert (found.cases, found.events) == (n, events)
    assert (found.metrics != {}) == enough == found.is_large_enough


@settings(max_examples=20, deadline=None)
@given(
    words=st.lists(st.sampled_from(["f", "m", "x", None]), min_size=1, max_size=120),
    sites=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_each_case_is_in_one_subgroup_and_at_one_site(words, sites, seed):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 2, len(words))
    table = cases(rng.random(len(words)) < 0.7, target, site=rng.integers(0, sites, len(words)).astype(str))
    found = subgroups(table, pd.Series(words, dtype=object), ACCURACY, binary=True)
    assert {one.name for one in found} == {word or "" for word in words}
    assert sum(one.cases for one in found) == len(words)
    assert sum(one.events for one in found) == target.sum()
    for one in found:
        assert sum(part.cases for part in one.sites.values()) == one.cases
        assert sum(part.events for part in one.sites.values()) == one.events
        assert all((part.metrics != {}) == part.is_large_enough for part in one.sites.values())
        if one.metrics:
            of = table[[word == one.name for word in words]]
            assert one.metrics["accuracy"].value == pytest.approx((of.target == of.score).mean())


def test_patients_and_sites_are_what_is_drawn():
    """Each case ten times is as much as each once: the interval is not narrower by the root of 10."""
    rng = np.random.default_rng(0)
    right, target = rng.random(60) < 0.8, np.arange(60) % 2
    once = cases(right, target, group=np.arange(60))
    tenfold = cases(np.repeat(right, 10), np.repeat(target, 10), group=np.repeat(np.arange(60), 10))
    (one,) = subgroups(once, pd.Series(["a"] * 60), {"right": Mean(lambda c: c.targets == c.scores)})
    (ten,) = subgroups(tenfold, pd.Series(["a"] * 600), {"right": Mean(lambda c: c.targets == c.scores)})
    assert ten.metrics["right"][:3] == pytest.approx(one.metrics["right"][:3])
    assert (one.cases, ten.cases) == (60, 600)


def test_several_pairs_have_wider_intervals_together():
    of = [Subgroup(name, 50, None) for name in "abc"]
    assert pairs_of(of) == 3
    assert level_of_pairs(of) == pytest.approx(1 - 0.05 / 3)
    assert pairs_of([*of, Subgroup("d", 29, None), Subgroup("", 50, None)]) == 3


def test_a_metric_without_a_value_is_not_compared():
    nothing = Interval(math.nan, math.nan, math.nan, "")
    of = [
        Subgroup(n, 50, None, {"a": v})
        for n, v in (("x", nothing), ("y", exact(40, 50)), ("z", exact(30, 50)))
    ]
    assert gap(of, "a")[:2] == ("y", "z")
    assert worst({"by": of}, "a", True)[1].name == "z"
    assert gap(of[:2], "a") is None
    assert gap(of, "b") is None
    assert worst({"by": of[:1]}, "a", True) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 1.0], 0.9),  # 1.5^2 / (2 * 1.25)
        ([1, 2, 3, 4], 100 / 120),
        ([0, 0, 0, 7], 0.25),
        ([0, 0], 1),
        ([1e-200, 3e-200], 0.8),  # 16 / (2 * 10), though their squares are 0 in float64
    ],
)
def test_jains_index_by_hand(values, expected):
    assert jain(values) == pytest.approx(expected, rel=1e-12)


def test_where_it_says_nothing():
    assert [jain(values) for values in ([], [0.5, -0.1], [0.5, np.nan], [1, np.inf])] == [None] * 4


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=20))
def test_it_is_1_by_one_plus_the_squared_variation(values):
    """``1 / (1 + (std / mean)^2)``, with the population's deviation."""
    variation = np.std(values) / np.mean(values)
    assert jain(values) == pytest.approx(1 / (1 + variation**2), rel=1e-9)


def test_who_is_worse_off_by_hand():
    """Of four, two lose; one of them surely, and one of the others surely gains: one to three may lose."""
    found = worse_off([-0.2, -0.1, 0.1, 0.3], [(-0.3, -0.1), (-0.2, 0.0), (0.0, 0.2), (0.2, 0.4)])
    assert found == (4, 2, 1, 3)
    assert worse_off([-1.0, 0.0], [None, (np.nan, np.nan)]) == (2, 1, 0, 2)


def test_each_of_several_has_a_higher_level():
    assert [bonferroni(0.95, number) for number in (0, 1, 10)] == pytest.approx([0.95, 0.95, 0.995])

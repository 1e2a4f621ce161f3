"""Jain's index: by hand, and what holds of it for any values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.records.metrics import jain
from fedbn_flower.study.statistics.fairness import bonferroni, worse_off

SHARES = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 1.0], 0.9),  # 1.5^2 / (2 * 1.25)
        ([1, 2, 3, 4], 100 / 120),
        ([0, 0, 0, 7], 0.25),
        ([0.7], 1),
        ([0, 0], 1),
        ([1e-200, 3e-200], 0.8),  # 16 / (2 * 10), though their squares are 0 in float64
    ],
)
def test_by_hand(values, expected):
    assert jain(values) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("values", [[], [0.5, -0.1], [0.5, np.nan], [1, np.inf]])
def test_where_it_says_nothing(values):
    assert jain(values) is None


@given(st.lists(SHARES, min_size=1, max_size=30), st.floats(0.01, 100), st.randoms())
def test_it_is_between_1_by_n_and_1_whatever_the_unit_and_the_order(values, unit, random):
    found = jain(values)
    assert 1 / len(values) - 1e-12 <= found <= 1
    shuffled = random.sample(values, len(values))
    assert jain([unit * value for value in shuffled]) == pytest.approx(found, rel=1e-9)


@given(SHARES, st.integers(1, 50))
def test_equal_values_are_1(value, clients):
    assert jain([value] * clients) == pytest.approx(1, rel=1e-12)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=20))
def test_it_is_1_by_one_plus_the_squared_variation(values):
    """``1 / (1 + (std / mean)^2)``, with the population's deviation."""
    variation = np.std(values) / np.mean(values)
    assert jain(values) == pytest.approx(1 / (1 + variation**2), rel=1e-9)


def test_who_is_worse_off_by_hand():
    """Of four, two lose; one of them surely, and one of the others surely gains: one to three may lose."""
    found = worse_off([-0.2, -0.1, 0.1, 0.3], [(-0.3, -0.1), (-0.2, 0.05), None, (0.2, 0.4)])
    assert found == (4, 2, 1, 3)


def test_without_any_interval_all_may_lose_or_none():
    assert worse_off([-1.0, 0.0], [None, (np.nan, np.nan)]) == (2, 1, 0, 2)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), max_size=20))
def test_the_number_lies_between_the_least_and_the_most(gains):
    found = worse_off([g for g, _ in gains], [(g - e, g + e) for g, e in gains])
    assert 0 <= found.least <= found.worse <= found.most <= found.clients == len(gains)


@pytest.mark.parametrize(("number", "level"), [(0, 0.95), (1, 0.95), (10, 0.995)])
def test_each_of_several_has_a_higher_level(number, level):
    assert bonferroni(0.95, number) == pytest.approx(level)

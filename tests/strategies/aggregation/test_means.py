"""Means: what they hold, and how entries are cut into blocks. Robust formulas are in test_robust.py."""

import tracemalloc
import weakref

import numpy as np
import pytest

from strategies.aggregation.means import Summand, TrimmedMean, WeightedMean
from strategies.aggregation.vectors import all_finite, finite


@pytest.mark.slow
def test_a_robust_mean_copies_no_answer():
    """Of 12 answers of 2 MB: the mean, 2 MB, and what a block of 2^15 entries takes, 1.5 MB each time."""
    answers = np.random.default_rng(0).normal(size=(12, 2**19)).astype(np.float32)
    mean = TrimmedMean([np.zeros(2**18, np.float32)] * 2, np.dtype(np.float32), 0.5)
    tracemalloc.start()
    for row in answers:
        mean.add(Summand([row[: 2**18].reshape(2**9, -1), row[2**18 :]], 1.0))
    mean.mean()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6


@pytest.mark.parametrize("sizes", [(1, 0, 7, 3), (0, 11), (11, 0), (5, 5, 1)])
def test_entries_of_any_size_and_dtype_are_cut_into_blocks(sizes, monkeypatch):
    monkeypatch.setattr("strategies.aggregation.vectors.BLOCK", 5)
    rng = np.random.default_rng(0)
    values, reference = rng.integers(-9, 9, size=(7, 11)), rng.normal(size=11)
    mean = TrimmedMean(np.split(reference, np.cumsum(sizes)[:-1]), np.dtype(np.float64), 0.5)
    for row in values:
        entries = np.split(row, np.cumsum(sizes)[:-1])
        mean.add(Summand([e.astype(t) for e, t in zip(entries, "fdlf", strict=False)], 1.0))
    np.testing.assert_allclose(mean.mean(), np.median(values, axis=0) - reference, atol=1e-12)


def weighted(rows, how):
    """The mean of groups of five, each of entries of 3, 0 and 11."""
    reference, dtype = [np.ones(size, np.float32) for size in (3, 0, 11)], np.dtype(np.float32)
    whole = WeightedMean(reference, dtype)
    for start in range(0, len(rows), 5):
        group = WeightedMean(reference, dtype)
        for row in rows[start : start + 5]:
            getattr(group, how)(Summand(np.split(row, [3, 3]), weight=row[0] ** 2, factor=0.7))
        whole.merge(group)
    return whole.mean()


@pytest.mark.parametrize("most", [0, 2 * 14 * 4, 2**29])
def test_vectors_that_were_held_are_summed_to_the_same_bits(most, monkeypatch):
    """Each at once, after every third, or all of a group together."""
    monkeypatch.setattr("strategies.aggregation.vectors.BLOCK", 4)
    monkeypatch.setattr("strategies.aggregation.means.HELD", most)
    rows = np.random.default_rng(0).normal(size=(12, 14)).astype(np.float32)
    assert weighted(rows, "hold").tobytes() == weighted(rows, "add").tobytes()


def test_no_more_bytes_are_held_than_allowed(monkeypatch):
    monkeypatch.setattr("strategies.aggregation.means.HELD", 3 * 400)
    mean, rows = WeightedMean([np.zeros(100, np.float32)], np.dtype(np.float32)), []
    for _ in range(9):
        row = np.ones(100, np.float32)
        mean.hold(Summand([row], 1.0))
        rows.append(weakref.ref(row))
        del row
        assert sum(one() is not None for one in rows) <= 3
    assert not any(mean.mean() - 1)


def test_values_whose_squares_are_too_large_are_finite():
    large = np.array([3e30, -1.0], np.float32)
    assert all_finite(large)
    assert not all_finite(np.array([np.nan, 1]))
    assert not all_finite(np.array([3e30, -np.inf], np.float32))
    assert finite({"w": large, "v": np.array([np.inf, 2.0])})["w"] is large

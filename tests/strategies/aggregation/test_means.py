"""Robust means: what they hold, and how entries are cut into blocks; their formulas are in test_robust.py."""

import tracemalloc

import numpy as np
import pytest

from strategies.aggregation.means import TrimmedMean


def test_a_robust_mean_copies_no_answer():
    """Of 12 answers of 4 MB: the mean, 4 MB, and what a block of 2^15 entries takes, 1.5 MB each time."""
    answers = np.random.default_rng(0).normal(size=(12, 2**20)).astype(np.float32)
    mean = TrimmedMean([np.zeros(2**19, np.float32)] * 2, np.dtype(np.float32), 0.5)
    tracemalloc.start()
    for row in answers:
        mean.add([row[: 2**19].reshape(2**9, -1), row[2**19 :]], 1.0)
    mean.mean()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16e6


@pytest.mark.parametrize("sizes", [(1, 0, 7, 3), (0, 11), (11, 0), (5, 5, 1)])
def test_entries_of_any_size_and_dtype_are_cut_into_blocks(sizes, monkeypatch):
    monkeypatch.setattr("strategies.aggregation.vectors.BLOCK", 5)
    rng = np.random.default_rng(0)
    values, reference = rng.integers(-9, 9, size=(7, 11)), rng.normal(size=11)
    mean = TrimmedMean(np.split(reference, np.cumsum(sizes)[:-1]), np.dtype(np.float64), 0.5)
    for row in values:
        entries = np.split(row, np.cumsum(sizes)[:-1])
        mean.add([e.astype(t) for e, t in zip(entries, "fdlf", strict=False)], 1.0)
    np.testing.assert_allclose(mean.mean(), np.median(values, axis=0) - reference, atol=1e-12)

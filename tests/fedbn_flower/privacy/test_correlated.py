"""Correlated noise against the dense matrix, and the figures of its papers' setting."""

from math import comb, sqrt

import numpy as np
import pytest

from fedbn_flower.privacy.accounts import Plan, noise_for
from fedbn_flower.privacy.noise import CorrelatedNoise, members


def dense(rounds, bands):
    """M of the module's docstring, entry by entry."""
    m = np.zeros((rounds, rounds))
    for i in range(rounds):
        for j in range(max(0, i - bands + 1), i + 1):
            m[i, j] = comb(2 * (i - j), i - j) / 4 ** (i - j)
    return m / np.sqrt((m**2).sum(0))


def streamed(noise, fresh):
    earlier, rows = [], []
    for t, row in enumerate(fresh, 1):
        found, earlier = noise.correlate(t, row.copy(), earlier)
        assert len(earlier) <= noise.bands - 1
        rows.append(found)
    return np.array(rows)


@pytest.mark.parametrize(("rounds", "bands"), [(1, 1), (7, 1), (12, 3), (10, 10), (5, 8), (40, 10)])
def test_a_stream_of_noise_is_the_inverse_of_the_matrix(rounds, bands):
    inverse = np.linalg.inv(dense(rounds, bands))
    rows = streamed(CorrelatedNoise(rounds, bands), np.eye(rounds))
    np.testing.assert_allclose(rows, inverse, atol=1e-12)


@pytest.mark.parametrize(("rounds", "bands"), [(100, 10), (23, 4), (9, 9), (6, 1)])
def test_a_client_moves_the_rounds_by_the_root_of_its_rounds(rounds, bands):
    """Whatever unit vectors it sends: columns that are b apart have no row in common."""
    signs = np.random.default_rng(1).choice([-1, 1], rounds)
    for group in range(bands):
        mine = np.array([members(t, bands, np.arange(bands))[group] for t in range(1, rounds + 1)])
        moved = dense(rounds, bands) @ (mine * signs)
        assert np.linalg.norm(moved) == pytest.approx(sqrt(mine.sum()))
        assert mine.sum() <= -(-rounds // bands)


def prefix_rms(rounds, bands):
    """Root mean square over rounds of the deviation of the noise summed so far, for z C = 1."""
    summed = np.tril(np.ones((rounds, rounds))) @ streamed(CorrelatedNoise(rounds, bands), np.eye(rounds))
    return sqrt((summed**2).sum(1).mean())


def test_prefix_sums_of_the_design():
    """Epsilon 8, delta 1e-5, 100 rounds, q = 0.1."""
    independent, correlated = prefix_rms(100, 1), prefix_rms(100, 10)
    assert independent == pytest.approx(sqrt(101 / 2))
    poisson = noise_for(8, Plan("poisson", 0.1, 1000, 100, 1e-5))
    cyclic = noise_for(8, Plan("cyclic", 0.1, 1000, 100, 1e-5, groups=10))
    assert poisson * independent == pytest.approx(6.65, rel=0.005)
    assert cyclic * independent == pytest.approx(13.5, rel=0.005)
    assert cyclic * correlated == pytest.approx(5.76, rel=0.005)


def test_it_goes_on_from_what_was_kept():
    noise, fresh = CorrelatedNoise(9, 4), np.random.default_rng(2).normal(size=(9, 5))
    whole = streamed(noise, fresh)
    kept = [vector.copy() for vector in whole[4:1:-1]]  # rounds 5, 4, 3
    found, _ = noise.correlate(6, fresh[5].copy(), kept)
    np.testing.assert_array_equal(found, whole[5])
    with pytest.raises(ValueError, match="round 6 needs 3 vectors, not 2"):
        noise.correlate(6, fresh[5].copy(), kept[:2])

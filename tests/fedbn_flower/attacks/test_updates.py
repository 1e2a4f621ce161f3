"""The vectors of attackers, against numbers by hand, the papers' formulas and a search by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedbn_flower.attacks.updates import alie, alie_z, ipm, min_max, noise, scaled


def model(*values):
    """A model of two entries, the first of them a matrix."""
    return {"w": np.array([values[:2]], np.float32), "b": np.array(values[2:], np.float32)}


def flat(model):
    return np.concatenate([entry.reshape(-1) for entry in model.values()]).astype(float)


X = model(1, 1, 1)
HONEST = [model(2, 1, 0), model(4, 1, 0), model(3, 4, 3)]
"""Their mean is 3, 2, 1, their deviations sqrt(2/3), sqrt(2), sqrt(2)."""


def test_scaled_by_hand():
    """x = 1 1 1 and x_i = 3 0 1: x + 2 (x_i - x) = 5 -1 1, and x - 2 (x_i - x) = -3 3 1."""
    np.testing.assert_array_equal(flat(scaled(X, model(3, 0, 1), 2)), [5, -1, 1])
    np.testing.assert_array_equal(flat(scaled(X, model(3, 0, 1), -2)), [-3, 3, 1])


def test_ipm_by_hand():
    """The mean update is 2 1 0: x - 3 times it is -5 -2 1."""
    np.testing.assert_allclose(flat(ipm(X, HONEST, 1, 3.0)), [-5, -2, 1], rtol=1e-6)


def test_alie_by_hand():
    expected = [3 - 2 * np.sqrt(2 / 3), 2 - 2 * np.sqrt(2), 1 - 2 * np.sqrt(2)]
    np.testing.assert_allclose(flat(alie(X, HONEST, 1, 2.0)), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("n", "f", "share"),
    [(50, 24, 24 / 26), (50, 12, 24 / 38), (50, 10, 24 / 40), (51, 10, 25 / 41), (20, 4, 9 / 16)],
)
def test_z_is_that_of_the_paper(n, f, share):
    """s = floor(n / 2 + 1) - f, and Phi(z) = (n - f - s) / (n - f): of 50 and 24, s = 2 and 24 / 26."""
    assert norm.cdf(alie_z(n, f)) == pytest.approx(share)


def test_z_where_nobody_has_to_be_won_over_is_large_but_finite():
    assert alie_z(10, 2) == 0.0  # s = 4 of 8
    assert alie_z(3, 1) == 0.0
    assert alie_z(2, 1) == 0.0  # s = 1 of 1
    assert 3 < alie_z(10, 8) < 7  # the attackers are the majority


def test_alie_uses_the_z_of_its_round():
    """Of 3 honest clients and 2 attackers, s = 1, and Phi(z) = 2 / 3."""
    z = norm.ppf(2 / 3)
    assert flat(alie(X, HONEST, 2, None))[0] == pytest.approx(3 - z * np.sqrt(2 / 3))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 9), seed=st.integers(0, 999), size=st.floats(0.01, 100))
def test_min_max_is_as_far_as_it_may_go(n, seed, size):
    """By brute force: at this gamma the farthest honest client is as far as two of these, a bit more is too
    far, and the same by bisection."""
    rng = np.random.default_rng(seed)
    rows = size * rng.normal(size=(n, 3))
    honest = [{"w": row[None, :2], "b": row[2:]} for row in rows]
    x = {"w": np.zeros((1, 2)), "b": np.zeros(1)}
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    most = max(np.linalg.norm(a - b) for a in rows for b in rows)

    def too_far(gamma):
        return max(np.linalg.norm(mean - gamma * deviation - row) for row in rows) > most

    low, high = 0.0, 1000.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if too_far(middle) else (middle, high)
    sent = flat(min_max(x, honest, 1, None))
    np.testing.assert_allclose(sent, mean - low * deviation, atol=1e-6 * size)


def test_honest_clients_that_are_all_alike_are_what_min_max_and_alie_send():
    alike = [model(2, 3, 4)] * 3
    np.testing.assert_array_equal(flat(min_max(X, alike, 1, None)), [2, 3, 4])
    np.testing.assert_array_equal(flat(alie(X, alike, 1, 9.0)), [2, 3, 4])
    np.testing.assert_array_equal(flat(min_max(X, alike[:1], 1, None)), [2, 3, 4])


def test_noise_has_the_deviation_around_what_was_received():
    x = {"w": np.full((200, 100), 7, np.float32)}
    found = noise(x, ["w"], 0.5, np.random.default_rng(0))["w"]
    assert found.dtype == np.float32
    assert found.mean() == pytest.approx(7, abs=0.02)
    assert found.std() == pytest.approx(0.5, rel=0.02)

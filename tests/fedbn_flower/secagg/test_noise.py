"""Noise in shares: its accountant against sums of exact probabilities, its deviation, and an audit."""

import math
from functools import reduce

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import kstest

from fedbn_flower.core.errors import UserError
from fedbn_flower.privacy.accounts import Plan, epsilon
from fedbn_flower.privacy.keys import Key
from fedbn_flower.secagg import noise as module
from fedbn_flower.secagg.noise import NoiseShares, num_honest, sum_epsilon, sum_noise_for, tau

DELTA = 1e-5
ONCE = Plan("all", 1.0, 100, 1, DELTA)


def discrete_gaussian(deviation, reach):
    """The exact probabilities of N_Z(0, s^2) at -reach, ..., reach, in float64."""
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * deviation**2))
    return weights / weights.sum()


def summed(deviation, count):
    """The probabilities of the sum of ``count`` discrete Gaussians, by convolution."""
    one = discrete_gaussian(deviation, math.ceil(12 * deviation) + 2)
    whole = reduce(np.convolve, [one] * count)
    reach = min(whole.size // 2, math.ceil(12 * deviation * math.sqrt(count)) + 2)
    return whole[whole.size // 2 - reach : whole.size // 2 + reach + 1]


def moved(probabilities, steps):
    """The probabilities around 0 and around ``steps``, on the same numbers."""
    zeros = np.zeros(steps)
    return np.concatenate([probabilities, zeros]), np.concatenate([zeros, probabilities])


def exact_epsilon(p, q, rounds=1):
    """Epsilon of P against Q and of Q against P, each round independent, by summing over all outcomes."""

    def delta(eps, one, other):
        for _ in range(rounds - 1):
            one, other = np.multiply.outer(one, p).ravel(), np.multiply.outer(other, q).ravel()
        return max(
            np.maximum(one - math.exp(eps) * other, 0).sum(), np.maximum(other - math.exp(eps) * one, 0).sum()
        )

    return brentq(lambda eps: delta(eps, p, q) - DELTA, 0, 60)


@pytest.mark.parametrize("count", [2, 10, 100])
@pytest.mark.parametrize("deviation", [0.6, 0.8, 1.0, 2.0])
def test_a_sum_is_a_discrete_gaussian_up_to_half_of_tau(count, deviation):
    """Theorem 9, whose factor of 5 is half of tau's. Of two it is nearly as much."""
    found = summed(deviation, count)
    middle = slice(found.size // 4, -(found.size // 4))
    reference = discrete_gaussian(deviation * math.sqrt(count), found.size // 2)
    off = np.abs(np.log(found[middle] / reference[middle])).max()
    assert off <= tau(deviation, count) / 2 + 1e-11
    assert count > 2 or off > tau(deviation, count) / 6 - 1e-11


def test_tau_by_hand():
    """Of two: k = 1 alone."""
    assert tau(1.0, 2) == pytest.approx(10 * math.exp(-(math.pi**2)))
    assert tau(1.0, 1) == 0
    assert tau(1.0, 3) == pytest.approx(10 * (math.exp(-(math.pi**2)) + math.exp(-4 / 3 * math.pi**2)))
    assert tau(64, 10**6) == 0


@pytest.mark.parametrize("count", [2, 10, 100])
@pytest.mark.parametrize(("deviation", "norm"), [(0.7, 1), (1.0, 1), (1.0, 5), (2.0, 3), (4.0, 20)])
def test_epsilon_is_at_least_that_of_all_outcomes_and_hardly_more(count, deviation, norm):
    """Beside what tau adds, a fifth is what Renyi divergences add to epsilon."""
    stated = sum_epsilon(deviation, count, norm, 1, ONCE)
    exact = exact_epsilon(*moved(summed(deviation, count), norm))
    assert exact <= stated
    if tau(deviation, count) < 1e-3 and exact > 0.1:
        assert stated < 1.25 * exact


@pytest.mark.parametrize("count", [2, 10])
@pytest.mark.parametrize("rounds", [2, 3])
def test_epsilon_of_some_rounds(count, rounds):
    """As much as of as many entries that one client moves: outcomes are independent in both."""
    p, q = moved(summed(1.0, count), 2)
    keep = (p + q) > 1e-13
    plan = Plan("all", 1.0, 100, rounds, DELTA)
    stated, exact = sum_epsilon(1.0, count, 2, 1, plan), exact_epsilon(p[keep], q[keep], rounds)
    assert exact < stated < 1.25 * exact
    assert sum_epsilon(1.0, count, 2, 1, plan, rounds=1) < stated
    assert sum_epsilon(1.0, count, 2, 1, plan, rounds=0) == 0
    of_entries = sum_epsilon(1.0, count, 2 * math.sqrt(rounds), rounds, ONCE)
    assert exact < of_entries == pytest.approx(stated, rel=0.02)


@pytest.mark.parametrize("probability", [0.1, 0.5])
@pytest.mark.parametrize("count", [2, 10])
@pytest.mark.parametrize("rounds", [1, 2])
def test_epsilon_of_a_secret_sample(count, probability, rounds):
    p, q = moved(summed(1.0, count), 4)
    mixture = (1 - probability) * p + probability * q
    keep = (p + q) > 1e-13
    plan = Plan("poisson", probability, 100, rounds, DELTA)
    stated, exact = sum_epsilon(1.0, count, 4, 1, plan), exact_epsilon(mixture[keep], p[keep], rounds)
    assert exact < stated < 1.5 * exact + 0.05
    assert stated < sum_epsilon(1.0, count, 4, 1, Plan("all", 1.0, 100, rounds, DELTA))


def test_those_who_take_turns_and_those_who_are_drawn():
    turns = Plan("cyclic", 0.25, 100, 10, DELTA, groups=4)
    assert sum_epsilon(4.0, 10, 9, 5, turns) == sum_epsilon(4.0, 10, 9, 5, Plan("all", 1.0, 100, 3, DELTA))
    drawn = Plan("fixed", 0.25, 100, 3, DELTA)
    assert sum_epsilon(4.0, 10, 9, 5, drawn) == sum_epsilon(4.0, 10, 9, 5, Plan("all", 1.0, 100, 3, DELTA))


@pytest.fixture
def coarse(monkeypatch):
    """A grid that is coarse enough for probabilities to be summed."""
    monkeypatch.setattr(module, "STEPS", 64)
    monkeypatch.setattr(module, "MOST_LOSS", 1.0)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("honest", [1.0, 0.5])
@pytest.mark.parametrize("clients", [2, 10])
def test_epsilon_of_shares_is_that_of_those_who_are_honest(clients, honest):
    shares = NoiseShares.plan(1.5, 1.0, clients, clients, 1, honest)
    assert shares.counted == clients * honest
    assert (shares.deviation, shares.noise) == (64, pytest.approx(1.5))
    exact = exact_epsilon(*moved(summed(64, shares.counted), math.floor(shares.grid.norm)))
    assert exact < shares.epsilon(ONCE) < 1.25 * exact
    assert exact == pytest.approx(epsilon(1.5, ONCE), rel=0.03)  # as of one central Gaussian


@pytest.mark.parametrize(
    ("survivors", "honest", "counted"), [(10, 1, 10), (10, 0.5, 5), (3, 0.5, 2), (2, 0.1, 1), (10, 0.3, 3)]
)
def test_how_many_are_honest(survivors, honest, counted):
    assert num_honest(survivors, honest) == counted


@pytest.mark.slow
@pytest.mark.parametrize("honest", [1.0, 0.5])
def test_the_sum_of_those_who_have_to_survive_has_the_deviation_to_1_percent(honest):
    clip, noise, entries, survivors = 0.3, 0.8, 100_000, 4
    shares = NoiseShares.plan(noise, clip, 6, survivors, entries, honest)
    total = sum(shares.draw() for _ in range(survivors))
    found = shares.grid.read(total)
    assert found.std() == pytest.approx(noise * clip / math.sqrt(honest), rel=0.01)
    assert abs(found.mean()) < 4 * found.std() / math.sqrt(entries)
    assert kstest(found / found.std(), "norm").pvalue > 0.001
    others = [shares.grid.read(shares.draw()) for _ in range(2)]
    assert abs(np.corrcoef(*others)[0, 1]) < 0.02  # no two are alike


def test_noise_comes_from_its_words():
    shares = NoiseShares.plan(1.0, 1.0, 3, 3, 20)
    words = [Key(bytes(32)).numbers(1, 1, "noise", mark).words for mark in ("a", "a", "b")]
    one, again, other = (shares.draw(word).tolist() for word in words)
    assert one == again != other


@pytest.mark.parametrize("clients", [2, 3, 10, 100, 1000, 20_000, 10**6])
@pytest.mark.parametrize("entries", [1, 1000, 11_000_000])
@pytest.mark.parametrize("noise", [0.0118, 0.3, 1.0, 50.0])  # of 0.0118, ten clients fit but for their noise
def test_no_sum_with_noise_wraps(clients, entries, noise):
    survivors = math.ceil(0.6 * clients)
    shares = NoiseShares.plan(noise, 1.0, clients, survivors, entries)
    grid = shares.grid
    assert clients * grid.bound + 12 * shares.deviation * math.sqrt(clients) < 2 ** (grid.bits - 1)
    assert shares.noise == pytest.approx(noise)
    assert shares.noise * (1 + 1e-12) >= noise
    assert grid.bits == 32 or clients > 1000
    assert 1 <= grid.norm * grid.step < 1.01  # what one client can change, over the clip


@pytest.mark.parametrize(
    "values",
    [{"noise": 0.0}, {"survivors": 0}, {"survivors": 11}, {"honest": 0.0}, {"honest": 1.1}, {"clip": 0.0}],
)
def test_what_cannot_be_planned_is_refused(values):
    with pytest.raises(ValueError, match="out of range|greater than 0"):
        NoiseShares.plan(**{"noise": 1.0, "clip": 1.0, "clients": 10, "survivors": 6, "entries": 5, **values})


@pytest.mark.parametrize("honest", [1.0, 0.5])
def test_the_noise_of_an_epsilon_is_the_smallest(honest):
    plan = Plan("all", 1.0, 50, 20, DELTA)
    noise = sum_noise_for(2.0, plan, 30, 1000, honest)

    def spent(noise):
        return NoiseShares.plan(noise, 7.0, 50, 30, 1000, honest).epsilon(plan)

    assert spent(noise) <= 2.0 < spent(noise * 0.999)
    with pytest.raises(UserError, match="epsilon"):
        sum_noise_for(1e-12, plan, 30, 1000)

"""Attacks: none finds more than is claimed, and each finds a broken mechanism out."""

import numpy as np
import pytest
from scipy.stats import binom

from fedbn_flower.privacy.accounts import Plan, local_noise_for, noise_for
from fedbn_flower.privacy.audit import audited, guess, lower_bound
from fedbn_flower.privacy.correlated import CorrelatedNoise, members

CANARIES, GUESSES, ROUNDS, SHARE, DELTA = 2000, 200, 40, 0.25, 1e-5


@pytest.mark.parametrize(
    ("m", "r", "v", "expected"),
    [(100, 100, 100, 3.493), (1000, 1000, 1000, 5.809), (1000, 1000, 750, 0.977)],
)
def test_bounds_of_the_paper(m, r, v, expected):
    assert lower_bound(m, r, v) == pytest.approx(expected, rel=1e-3)


def test_all_right_is_a_closed_form():
    """0.05 = sigmoid(epsilon)^r."""
    p = 0.05 ** (1 / 40)
    assert lower_bound(500, 40, 40) == pytest.approx(np.log(p / (1 - p)))


def test_half_right_says_nothing():
    assert lower_bound(1000, 100, 50) == 0
    assert lower_bound(1000, 100, 58) == 0 < lower_bound(1000, 100, 60)
    assert binom.sf(57, 100, 0.5) > 0.05 > binom.sf(59, 100, 0.5)


def test_delta_lowers_the_bound():
    bounds = [lower_bound(1000, 1000, 750, delta) for delta in (0, 1e-6, 1e-5, 1e-4)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[3]


def test_guesses_are_the_extremes():
    np.testing.assert_array_equal(guess(np.array([3.0, -1, 0, 9, 1]), 3), [1, -1, 0, 1, 0])


def summed_scores(sampling, noise, rng, length=1.0, known=False, bands=1):
    """Canaries of orthogonal u_i; D_t, by each u_i, of a mechanism with C = 1. Return scores and who is in.

    ``length`` is that of what a canary sends after clipping. Where the sample is ``known``, only rounds with
    the canary count.
    """
    inside = rng.random(CANARIES) < 0.5
    sampled = np.empty((ROUNDS, CANARIES), bool)
    for t in range(ROUNDS):
        match sampling:
            case "poisson":
                sampled[t] = rng.random(CANARIES) < SHARE
            case "fixed":
                sampled[t] = rng.permutation(CANARIES) < SHARE * CANARIES
            case "cyclic":
                sampled[t] = members(t + 1, round(1 / SHARE), CANARIES)
            case "all":
                sampled[t] = True
    correlation, earlier, added = CorrelatedNoise(ROUNDS, bands), [], []
    for t in range(ROUNDS):
        one, earlier = correlation.correlate(t + 1, rng.normal(size=CANARIES), earlier)
        added.append(noise * one)
    out = -length if sampling == "fixed" else 0.0  # replace one: the other sends the opposite
    sent = np.where(inside, length, out)
    published = sampled * sent + np.array(added)
    if bands > 1:  # whoever knows the matrix has independent noise back
        rows = np.array(
            [
                [correlation.entry(i, j) if 0 <= i - j < bands else 0 for j in range(ROUNDS)]
                for i in range(ROUNDS)
            ]
        )
        signal = rows @ sampled
        return ((rows @ published) * signal).sum(0), inside
    return (published * (sampled if known or sampling == "cyclic" else 1)).sum(0), inside


PLANS = {
    "poisson": Plan("poisson", SHARE, CANARIES, ROUNDS, DELTA),
    "fixed": Plan("fixed", SHARE, CANARIES, ROUNDS, DELTA),
    "all": Plan("all", 1.0, CANARIES, ROUNDS, DELTA),
    "cyclic": Plan("cyclic", SHARE, CANARIES, ROUNDS, DELTA, bands=4),
}


@pytest.mark.parametrize("sampling", PLANS)
class TestCentral:
    CLAIM = 1.0

    def audit(self, sampling, factor=1.0, **faults):
        rng = np.random.default_rng(3)
        noise = factor * noise_for(self.CLAIM, PLANS[sampling])
        return audited(*summed_scores(sampling, noise, rng, **faults), GUESSES, DELTA)

    def test_what_is_found_is_below_the_claim(self, sampling):
        assert self.audit(sampling) < self.CLAIM

    def test_a_quarter_of_the_noise_is_found_out(self, sampling):
        assert self.audit(sampling, 0.25) > self.CLAIM

    def test_a_clip_that_leaks_is_found_out(self, sampling):
        assert self.audit(sampling, length=4.0) > self.CLAIM


def test_correlated_noise_hides_as_much():
    for factor, found_out in [(1.0, False), (0.25, True)]:
        noise = factor * noise_for(1.0, PLANS["cyclic"])
        scores = summed_scores("cyclic", noise, np.random.default_rng(3), bands=4)
        assert (audited(*scores, GUESSES, DELTA) > 1.0) == found_out


def test_a_sample_that_is_known_is_found_out():
    """As it is where it derives from the public seed: amplification by sampling is lost."""
    plan = Plan("poisson", 0.05, CANARIES, ROUNDS, DELTA)
    noise, rng = noise_for(1.0, plan), np.random.default_rng(3)
    inside, sampled = rng.random(CANARIES) < 0.5, rng.random((ROUNDS, CANARIES)) < 0.05
    published = sampled * inside + noise * rng.normal(size=(ROUNDS, CANARIES))
    assert audited(published.sum(0), inside, GUESSES, DELTA) < 1.0
    often = sampled.sum(0) > 3
    scores = (published * sampled).sum(0) - sampled.sum(0) / 2
    assert audited(scores[often], inside[often], 60, DELTA) > 1.0


@pytest.mark.parametrize(("factor", "found_out"), [(1.0, False), (0.25, True)])
def test_local_noise(factor, found_out):
    """A canary sends C u or -C u, three times, with noise of its own."""
    rng = np.random.default_rng(3)
    inside = rng.random(CANARIES) < 0.5
    noise = factor * local_noise_for(1.0, 3, DELTA)
    scores = (np.where(inside, 1.0, -1.0) + noise * rng.normal(size=(3, CANARIES))).sum(0)
    assert (audited(scores, inside, GUESSES, DELTA) > 1.0) == found_out

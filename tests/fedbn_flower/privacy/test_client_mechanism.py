"""What is published of a sum: the noise, who is sampled, and where an adaptive clip goes."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedbn_flower.privacy.client_mechanism import ClientMechanism
from fedbn_flower.privacy.keys import Key
from fedbn_flower.privacy.ledger import Ledger
from fedbn_flower.privacy.run_privacy import RunPrivacy
from fedbn_flower.privacy.terms import GUARANTEE, AdaptiveClip, Terms

TERMS = Terms(
    sampling="all",
    probability=1.0,
    num_answers=50.0,
    noise=1.5,
    clip=0.4,
    adaptive=False,
    delta=1e-5,
    budget=0.0,
    rounds=10,
    cohort=50.0,
    population=50,
    claim=GUARANTEE,
)


@pytest.fixture
def mechanism(tmp_path):
    def make(key=None, clip=None, repeats=True, name="ledger", **terms):
        found = replace(TERMS, **terms)
        written = Ledger(tmp_path / name, found.as_record())
        return ClientMechanism(key or Key(bytes(32)), written, found, clip or found.clip, repeats)

    return make


def noise_of(found, server_round=1, size=200_000):
    found.sample(server_round, np.arange(50))
    total = server_round * np.linspace(-0.01, 0.01, size, dtype=np.float32)
    return found.publish(server_round, total.copy(), 0.0) * found.num_answers - total


def test_a_budget_is_not_spent_before_rounds_that_are_repeated_at_no_cost():
    """Rounds 1 to 5 are charged, of a budget of six; the run goes on after round 3."""
    of = SimpleNamespace(_is_repeated=lambda t: t <= 5, _spends=lambda new: 5 + new >= 6)
    assert [RunPrivacy.begin_round(of, t) for t in (4, 5, 6)] == [False, False, True]
    of = SimpleNamespace(_is_repeated=lambda t: t <= 6, _spends=lambda new: 6 + new >= 6)
    assert [RunPrivacy.begin_round(of, t) for t in (4, 5, 6)] == [False, False, True]


def test_the_noise_on_the_sum_has_the_deviation_z_c(mechanism):
    """Of 200,000 entries the deviation is known to 0.2 %; it is to be right to 1 %."""
    noise = noise_of(mechanism())
    assert noise.std() == pytest.approx(1.5 * 0.4, rel=0.01)
    assert abs(noise.mean()) < 0.005
    assert np.abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.01


def test_the_noise_of_two_rounds_is_independent(mechanism):
    found = mechanism()
    first, second = (noise_of(found, t, 10**5) for t in (1, 2))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01


class TestSecure:
    """The sum is of whole numbers, and so is what is published, but for one factor."""

    def noise_of(self, found, size=200_000, t=1, total=0.0):
        step = found.step
        found.sample(t, np.arange(50))
        return found.publish(t, np.full(size, total), 0.0) * found.num_answers, step

    def test_the_noise_is_of_whole_steps_and_has_the_deviation_z_c(self, mechanism):
        noise, step = self.noise_of(mechanism(secure=True))
        assert step == pytest.approx(1.5 * 0.4 / 2**20)
        assert noise.std() == pytest.approx(1.5 * 0.4, rel=0.01)
        np.testing.assert_allclose(noise / step, np.rint(noise / step), atol=1e-6)

    def test_the_sum_is_in_it(self, mechanism):
        """Under the key of a seed: under a secret one another sum has other noise."""
        key = Key.of_seed(3)
        noise, step = self.noise_of(mechanism(key, secure=True), 100)
        moved, _ = self.noise_of(mechanism(key, secure=True, name="moved"), 100, total=2.0**40)
        np.testing.assert_allclose((moved - noise) / step, 2.0**40)

    def test_another_sum_has_other_noise(self, mechanism):
        noise, step = self.noise_of(mechanism(secure=True), 100)
        moved, _ = self.noise_of(mechanism(secure=True, name="moved"), 100, total=2.0**40)
        differences = (moved - noise) / step - 2.0**40
        assert differences.std() == pytest.approx(2**0.5 * 2**20, rel=0.3)

    def test_a_hypothetical_cohort_has_a_finer_grid(self, mechanism):
        """By hand as below: 0.03."""
        noise, _ = self.noise_of(mechanism(secure=True, cohort=1000.0, population=10**6))
        assert noise.std() == pytest.approx(0.03, rel=0.01)

    def test_the_grid_goes_with_an_adaptive_clip(self, mechanism):
        found = mechanism(secure=True, adaptive=True, clip=2.0)
        (first, step), before = self.noise_of(found), 2.0
        (second, finer), after = self.noise_of(found, t=2), found._ledger.charges[1].clip
        assert finer / step == pytest.approx(after / before)
        assert after != before
        assert first.std() == pytest.approx(1.5724 * before, rel=0.01)
        assert second.std() == pytest.approx(1.5724 * after, rel=0.01)

    @pytest.mark.slow
    def test_the_count_has_its_discrete_noise(self, mechanism):
        """sigma_b is 50/20 = 2.5 on the count of 50."""
        found = mechanism(secure=True, adaptive=True)
        adaptive = found._terms.adaptive_clip
        shares = np.array([found._share_within(t, 7.5, adaptive, "") for t in range(1, 2001)])
        counts = (shares - 0.5) * 50
        assert counts.mean() == pytest.approx(7.5, abs=0.2)
        assert counts.std() == pytest.approx(2.5, rel=0.06)
        half = 2**20 // 5  # one client's 1/2, in steps of which the deviation 2.5 is 2^20
        np.testing.assert_allclose(counts * 2 * half, np.rint(counts * 2 * half), atol=1e-6)

    def test_updates_and_count_together_move_by_what_is_accounted(self, mechanism):
        """In steps over all of which the noise is the same: 2^20 / z."""
        terms = mechanism(secure=True, adaptive=True)._terms
        half = 2**20 // (2 * terms.adaptive_clip.count_noise)
        assert math.hypot(terms.longest, half) == pytest.approx(2**20 / terms.noise, rel=1e-5)


def test_a_hypothetical_cohort_has_the_noise_of_its_mean(mechanism):
    """By hand: 1.5 * 0.4 / 1000 on the mean, so 50 times that on the sum of 50."""
    noise = noise_of(mechanism(cohort=1000.0, population=10**6))
    assert noise.std() == pytest.approx(0.03, rel=0.01)


def test_an_adaptive_clip_costs_the_updates_a_little_more_noise(mechanism):
    """sigma_b is 50/20 = 2.5: z_Delta = (1.5^-2 - 5^-2)^-0.5 = 1.5724."""
    noise = noise_of(mechanism(adaptive=True))
    assert noise.std() == pytest.approx(1.5724 * 0.4, rel=0.01)


def test_the_noise_that_updates_and_count_share():
    """z = 1 and sigma_b = 5: 1 / sqrt(1 - 0.01)."""
    assert AdaptiveClip(5.0).noise_for_updates(1.0) == pytest.approx(1.00504, abs=5e-6)
    assert [AdaptiveClip(0.5).is_possible(z) for z in (0.99, 1.0, 1.01)] == [True, False, False]


def test_an_adaptive_clip_goes_up_if_all_are_clipped_and_down_if_none_is(mechanism):
    """By hand, but for the noise of the count: exp(-0.2 (0 - 1/2)) = exp(0.1) and exp(-0.1)."""
    for within, factor in ((-1000.0, math.exp(0.1)), (1000.0, math.exp(-0.1))):
        found = mechanism(
            adaptive=True, clip=2.0, num_answers=2000.0, cohort=2000.0, population=2000, name=str(within)
        )
        found.sample(1, np.arange(2000))
        noise = found.publish(1, np.zeros(10**5, np.float32), within) * 2000
        assert found.bound == pytest.approx(2 * factor, rel=0.04)  # the count's noise: exp(0.2 * 0.05 * 4)
        assert noise.std() == pytest.approx(1.5 * 2, rel=0.02)  # with the clip that was used, not the next


def test_poisson_sampling_asks_the_clients_whose_number_is_below_the_probability(mechanism, monkeypatch):
    """Of 1,000 numbers at even steps of (0, 1) those below 0.3 are the first 300."""
    found = mechanism(sampling="poisson", probability=0.3, num_answers=300.0)
    even = SimpleNamespace(uniform=lambda count: (np.arange(count) + 0.5) / count)
    monkeypatch.setattr(Key, "numbers", lambda *_: even)
    assert np.flatnonzero(found.sample(1, np.arange(1000))).tolist() == [*range(300)]


def test_a_fixed_sample_has_its_size_and_every_client_the_same_chance(mechanism):
    found = mechanism(sampling="fixed", probability=0.2, num_answers=10.0)
    asked = np.array([found.sample(t, np.arange(50)) for t in range(1, 2001)])
    assert (asked.sum(1) == 10).all()
    np.testing.assert_allclose(asked.mean(0), 0.2, atol=0.04)


def test_a_fixed_sample_is_of_all_clients_not_only_of_those_that_are_connected(mechanism):
    """Were 10 drawn of the 25 that are there, each would be twice as likely as what is accounted."""
    found = mechanism(sampling="fixed", probability=0.2, num_answers=10.0)
    asked = np.array([found.sample(t, np.arange(25)) for t in range(1, 1001)])
    assert asked.shape == (1000, 25)
    assert asked.mean() == pytest.approx(0.2, rel=0.05)


def test_all_are_asked(mechanism):
    assert mechanism().sample(1, np.arange(7)).all()


def test_who_is_asked_is_not_known_without_the_key(mechanism):
    def asked(key, name):
        found = mechanism(key=key, name=name, sampling="poisson", probability=0.5)
        return [found.sample(t, np.arange(50)).tolist() for t in (1, 2)]

    assert asked(Key(), "one") != asked(Key(), "two")
    assert asked(Key.of_seed(3), "three") == asked(Key.of_seed(3), "four")


def test_a_repeated_round_has_the_same_bits_and_costs_nothing(mechanism):
    first = mechanism(sampling="poisson", probability=0.5)
    asked, noise = first.sample(1, np.arange(50)), noise_of(first, size=100)
    again = mechanism(sampling="poisson", probability=0.5)
    assert again.sample(1, np.arange(50)).tolist() == asked.tolist()
    assert noise_of(again, size=100).tobytes() == noise.tobytes()
    assert len(again._ledger.charges) == 1


def test_a_round_that_cannot_be_repeated_is_another_attempt_with_its_own_sample_and_noise(mechanism):
    first = mechanism(sampling="poisson", probability=0.5)
    asked, noise = first.sample(1, np.arange(50)), noise_of(first, size=100)
    again = mechanism(sampling="poisson", probability=0.5, repeats=False)
    assert again.sample(1, np.arange(50)).tolist() != asked.tolist()
    assert (noise_of(again, size=100) != noise).all()
    once, twice = again._ledger.charges
    assert (once.attempt, twice.attempt) == (1, 2)
    assert twice.epsilon == epsilon_of(2) > once.epsilon


def epsilon_of(published):
    return replace(TERMS, sampling="poisson", probability=0.5).epsilon(published)


TURNS = {"sampling": "cyclic", "probability": 0.25, "num_answers": 12.5, "cohort": 12.5, "groups": 4}


def test_groups_go_by_partition_and_not_by_who_is_connected(mechanism):
    """Were it by position, partition 5 would change its group while partition 0 is away."""
    found = mechanism(**TURNS, bands=4)
    for t in range(1, 9):
        asked = found.sample(t, np.array([1, 2, 5, 7, 8]))
        assert asked.tolist() == [p % 4 == (t - 1) % 4 for p in (1, 2, 5, 7, 8)]


@pytest.mark.parametrize("bands", [1, 3])
def test_noise_of_groups_is_independent_again_under_the_matrix(mechanism, bands):
    """M times the noise of all rounds is independent, of deviation z C; the columns have what is told."""
    found = mechanism(**TURNS, bands=bands, rounds=6)
    noise = np.array([noise_of(found, t, 50_000) for t in range(1, 7)])
    c = [1, 1 / 2, 3 / 8][:bands]
    m = sum(np.diag(np.full(6 - k, value), -k) for k, value in enumerate(c))
    m = m / np.sqrt((m**2).sum(0))
    fresh = m @ noise
    np.testing.assert_allclose(fresh @ fresh.T / 50_000, 0.36 * np.eye(6), atol=0.01)
    told = found._terms.correlated.deviations if bands > 1 else np.ones(6)
    np.testing.assert_allclose(noise.std(1), 0.6 * told, rtol=0.02)


def test_noise_of_groups_goes_on_from_any_round(mechanism):
    """A resumed run draws that of earlier rounds again, by the sums that its ledger has."""
    whole = mechanism(**TURNS, bands=4)
    rounds = [noise_of(whole, t, 100) for t in range(1, 7)]
    resumed = mechanism(**TURNS, bands=4)
    assert noise_of(resumed, 6, 100).tobytes() == rounds[5].tobytes()

"""Epsilon and noise: published numbers, closed forms, and attacks that no smaller epsilon would survive."""

import math
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedbn_flower.core.errors import UserError
from fedbn_flower.privacy import accounts
from fedbn_flower.privacy.accounts import Plan, epsilon, local_epsilon, local_noise_for, noise_for

HALF_A_PERCENT = 0.005


def poisson(q, rounds, delta):
    return Plan("poisson", q, 60000, rounds, delta)


def fixed(q, rounds, delta):
    return Plan("fixed", q, 1000, rounds, delta)


def test_rounds_cost_what_dp_accounting_says():
    """dp-accounting 0.6 by itself: PLDs with its own grid of 1e-4."""
    assert epsilon(1, poisson(0.1, 100, 1e-4)) == pytest.approx(5.97, rel=HALF_A_PERCENT)
    assert epsilon(4, poisson(0.01, 10_000, 1e-5)) == pytest.approx(0.947, rel=HALF_A_PERCENT)
    assert epsilon(1, poisson(5000 / 763_430, 5000, 1e-9)) == pytest.approx(3.899, rel=HALF_A_PERCENT)
    assert epsilon(0.616, poisson(1e-3, 1500, 1e-6)) == pytest.approx(2.0, rel=HALF_A_PERCENT)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "epochs", "expected"), [(1.12, 60, 2.310), (0.6, 30, 7.690)])
def test_two_trainings_on_mnist(noise, epochs, expected):
    """Tutorials of TensorFlow Privacy and Opacus say 2.92 and 9.74, by RDP."""
    steps = epochs * 60_000 // 256
    assert epsilon(noise, poisson(256 / 60_000, steps, 1e-5)) == pytest.approx(expected, rel=HALF_A_PERCENT)


@given(st.floats(0.3, 30), st.integers(1, 500), st.floats(-9, -2))
def test_the_gaussian_has_its_closed_form(noise, rounds, exponent):
    """Balle and Wang 2018: delta = P[N > e s - 1/2s] - exp(e) P[N > e s + 1/2s], where s = z / sqrt k."""
    delta = 10**exponent
    e, s = epsilon(noise, Plan("all", 1.0, 10, rounds, delta)), noise / math.sqrt(rounds)
    found = norm.sf(e * s - 0.5 / s) - math.exp(e + norm.logsf(e * s + 0.5 / s))
    if e > 0:
        assert found == pytest.approx(delta, rel=1e-6)
    else:
        assert found <= delta


def test_in_cyclic_only_ones_own_rounds_count():
    plan = Plan("cyclic", 0.1, 100, 95, 1e-5, groups=10)
    ten = epsilon(2, Plan("all", 1.0, 100, 10, 1e-5))
    assert epsilon(2, plan) == epsilon(2, plan, 91) == ten
    assert epsilon(2, plan, 90) == epsilon(2, Plan("all", 1.0, 100, 9, 1e-5)) < ten


class TestFixed:
    """Sums of samples without replacement differ by 2C where one client is replaced."""

    def test_a_sample_of_all_is_one_gaussian_of_half_the_noise(self):
        assert epsilon(2, fixed(1.0, 1, 1e-5)) == pytest.approx(4.3772, rel=1e-4)
        assert epsilon(10, fixed(1.0, 10, 1e-5)) == pytest.approx(2.5944, rel=1e-3)

    @pytest.mark.slow
    def test_it_is_less_than_renyi_divergences_give(self):
        """Wang, Balle and Kasiviswanathan 2019 give 12.90, for a noise of 1 over what the sums differ by."""
        from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent
        from dp_accounting.rdp import RdpAccountant

        accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        accountant.compose(SampledWithoutReplacementDpEvent(1000, 100, GaussianDpEvent(1.0)), 100)
        assert accountant.get_epsilon(1e-4) == pytest.approx(12.90, rel=1e-3)
        assert epsilon(2, fixed(0.1, 100, 1e-4)) == pytest.approx(6.712, rel=1e-3)

    def test_it_is_at_least_what_an_attack_finds(self):
        """All others send -C u, and one sends C u in place of -C u: 0 or, if sampled, 2C more.

        That is the Poisson-subsampled Gaussian of half the noise in one direction, here by its own integral.
        """
        for noise, q in [(1.0, 0.1), (4.0, 0.01)]:
            p_over = norm.sf  # one round
            found = epsilon(noise, fixed(q, 1, 1e-3))
            ratio = (math.exp(found) - 1 + q) / q  # of the densities of N(2, z^2) and N(0, z^2)
            cut = noise**2 / 2 * math.log(ratio) + 1 if ratio > 0 else -math.inf
            p = (1 - q) * p_over(cut / noise) + q * p_over((cut - 2) / noise)
            assert p - math.exp(found) * p_over(cut / noise) == pytest.approx(1e-3, rel=0.02)
        assert epsilon(1, fixed(0.1, 100, 1e-4)) > epsilon(0.5, poisson(0.1, 100, 1e-4)) > 27


def secure(plan):
    return replace(plan, secure=True)


def discrete(deviation, mean):
    """Densities of discrete Gaussian noise around a whole vector, as far as floats hold them."""
    grid = np.arange(-60 * deviation, 60 * deviation + 1)
    lines = [np.exp(-((grid - m) ** 2) / (2 * deviation**2)) for m in mean]
    return reduce(np.multiply.outer, [line / line.sum() for line in lines])


def renyi(p, q, order):
    both = (p > 0) & (q > 0)
    return math.log((q[both] * (p[both] / q[both]) ** order).sum()) / (order - 1)


class TestSecure:
    """Discrete noise on a grid, by Renyi divergences."""

    @pytest.mark.parametrize(
        ("deviation", "mean"), [(1, [1]), (3, [-5]), (4, [1]), (2, [1, -2]), (3, [0, 3])]
    )
    @pytest.mark.parametrize("q", [0.02, 0.5, 1.0])
    def test_both_divergences_of_discrete_noise_are_accounted(self, deviation, mean, q):
        """Summed over the grid itself: one is what is accounted, the other is not greater."""
        orders = (2, 3, 5)
        noise = deviation / math.hypot(*mean)
        around_zero = discrete(deviation, [0] * len(mean))
        mixed = (1 - q) * around_zero + q * discrete(deviation, mean)
        for order, accounted in zip(orders, accounts._renyi(noise, q, orders), strict=True):
            assert renyi(mixed, around_zero, order) == pytest.approx(accounted, rel=1e-6)
            assert renyi(around_zero, mixed, order) <= accounted * (1 + 1e-6)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("noise", "plan", "most"),
        [
            (1, poisson(0.1, 100, 1e-4), 1.15),
            (4, poisson(0.01, 10_000, 1e-5), 1.1),
            (3, poisson(0.1, 512, 1e-6), 1.08),
            (1, Plan("all", 1.0, 10, 1, 1e-5), 1.09),
            (1, Plan("all", 1.0, 10, 100, 1e-4), 1.06),
        ],
    )
    def test_it_costs_a_little_more_than_noise_of_floats(self, noise, plan, most):
        assert 1 < epsilon(noise, secure(plan)) / epsilon(noise, plan) < most

    def test_under_sampling_only_whole_orders_count(self, monkeypatch):
        """At others the divergences of discrete noise are not those of the Gaussian."""
        asked, renyi = [], accounts._renyi
        monkeypatch.setattr(accounts, "_renyi", lambda *given: asked.extend(given[2]) or renyi(*given))
        assert epsilon(1, secure(poisson(0.1, 100, 1e-5))) > 0
        assert asked
        assert all(isinstance(order, int) and order >= 2 for order in asked)

    def test_the_table_of_the_docs(self):
        """docs/privacy.md: noise, epsilon by default and with secure noise."""
        text = (Path(__file__).parents[3] / "docs/privacy.md").read_text()
        for noise, plan in TABLE:
            found = [f"{epsilon(noise, one):.2f}" for one in (plan, secure(plan))]
            line = f"| `{plan.sampling}` | {plan.probability:g} | {plan.rounds} | {noise:g} |"
            assert f"{line} {found[0]} | {found[1]} |" in text

    def test_without_sampling_it_is_the_zcdp_of_the_paper(self):
        """2004.00010, theorem 14: rho = T / 2 z^2; epsilon from it by proposition 12."""
        rho, delta = 10 / (2 * 5.0**2), 1e-5
        orders = np.linspace(1.01, 64, 200_000)
        found = rho * orders + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
        assert epsilon(5, secure(Plan("all", 1.0, 10, 10, delta))) == pytest.approx(found.min(), rel=2e-3)


TABLE = [
    (1, poisson(0.1, 100, 1e-5)),
    (4, poisson(0.1, 100, 1e-5)),
    (1, poisson(0.01, 100, 1e-5)),
    (10, Plan("all", 1.0, 10, 100, 1e-5)),
]


def test_local_noise_is_read_by_everybody():
    assert local_epsilon(10, 1, 1e-5) == pytest.approx(0.726, rel=1e-3)
    assert local_epsilon(10, 10, 1e-5) == pytest.approx(2.594, rel=1e-3)
    assert local_epsilon(2, 1, 1e-5) == pytest.approx(4.3772, rel=1e-4)  # RDP that forgets 2C says 2.17
    assert local_epsilon(10, 0, 1e-5) == 0
    assert 9.99 < local_noise_for(2.5944, 10, 1e-5) <= 10.01


PLANS = [
    poisson(0.1, 100, 1e-5),
    poisson(0.02, 300, 1e-6),
    fixed(0.1, 50, 1e-5),
    Plan("all", 1.0, 10, 30, 1e-3),
    Plan("cyclic", 0.25, 8, 21, 1e-4, groups=4),
    secure(poisson(0.1, 100, 1e-5)),
    secure(Plan("all", 1.0, 10, 30, 1e-3)),
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.sampling)
class TestEverySampling:
    @pytest.mark.sampled(3)
    def test_more_noise_and_more_delta_cost_less_and_more_rounds_more(self, plan):
        by_noise = [epsilon(z, plan) for z in (0.05, 0.5, 1, 2, 8, 64)]
        assert by_noise == sorted(by_noise, reverse=True)
        by_round = [epsilon(1.5, plan, t) for t in range(0, plan.rounds + 1, max(1, plan.rounds // 8))]
        assert by_round == sorted(by_round)
        assert by_round[0] == 0 < by_round[1]
        by_delta = [epsilon(1.5, replace(plan, delta=d)) for d in (1e-9, 1e-6, 1e-3)]
        assert by_delta == sorted(by_delta, reverse=True)

    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("target", [0.5, 8])
    def test_noise_is_the_smallest_of_its_digits(self, plan, target):
        noise = noise_for(target, plan)
        assert float(f"{noise:.4g}") == noise
        assert target * 0.99 < epsilon(noise, plan) <= target
        step = 10 ** (math.floor(math.log10(noise)) - 3)
        assert epsilon(noise - step, plan) > target

    def test_without_noise_nothing_is_protected(self, plan):
        assert epsilon(0.0, plan) == math.inf


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(st.floats(0.02, 0.9), st.floats(0.5, 8))
def test_rarer_sampling_costs_less(q, noise):
    for plan in (poisson, fixed):
        assert epsilon(noise, plan(q / 2, 10, 1e-5)) <= epsilon(noise, plan(q, 10, 1e-5)) * 1.002
        assert epsilon(noise, plan(1.0, 10, 1e-5)) >= epsilon(noise, plan(q, 10, 1e-5)) * 0.998


def test_adjacency_is_said():
    assert [p.adjacency for p in PLANS] == [
        "add-or-remove-one",
        "add-or-remove-one",
        "replace-one",
        *["add-or-remove-one"] * 4,
    ]


def test_a_missing_package_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(accounts, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^dp: needs another package: pip install 'fedbn-flower\[dp\]'$"):
        accounts.check_installed("dp")


class TestCorners:
    def test_a_delta_at_which_those_sampled_could_be_published_is_refused(self):
        """Of three samples with q = 0.01 one is in any with probability 1 - 0.99^3 = 0.0297."""
        for sampling in ("poisson", "fixed"):
            plan = Plan(sampling, 0.01, 100, 3, 0.029702)
            with pytest.raises(
                UserError, match="dp-delta: 0.029702 is not allowed; expected less than 0.03, the p"
            ):
                noise_for(8, plan)
            assert noise_for(8, replace(plan, delta=0.02)) > 0
        assert Plan("all", 1.0, 100, 3, 0.5).takes_part == 1

    @pytest.mark.sampled(7)
    @pytest.mark.parametrize("target", [1e-9, 1e-3, 1e3, 1e9])
    @pytest.mark.parametrize("count", [1, 10**6, 10**12])
    @pytest.mark.parametrize("delta", [1e-15, 1e-5, 0.999])
    def test_any_epsilon_that_is_allowed_has_its_noise(self, target, count, delta):
        """A hundredth less has more epsilon, unless delta alone covers both."""
        noise = local_noise_for(target, count, delta)
        assert 0 < noise < math.inf
        assert local_epsilon(noise, count, delta) <= target < local_epsilon(0.99 * noise, count, delta)

    @pytest.mark.parametrize("target", [0.0, 9e-10, 1.1e9, math.inf, math.nan, -1.0])
    def test_any_other_is_refused(self, target):
        for find in (
            lambda: local_noise_for(target, 3, 1e-5),
            lambda: noise_for(target, Plan("poisson", 0.1, 100, 10**4, 1e-5)),
        ):
            with pytest.raises(
                UserError, match=r"^epsilon: .* is not allowed; expected a number in \[1e-09, 1e"
            ):
                find()

    @pytest.mark.parametrize("sampling", ["poisson", "fixed"])
    def test_next_to_no_noise_has_an_epsilon(self, sampling):
        """Without sampling 100 Gaussians of noise 0.001 are one of 0.0001: about 1e8 / 2 and 4.27 * 1e4."""
        factor = 2 if sampling == "fixed" else 1
        found = epsilon(0.001, Plan(sampling, 0.1, 100, 100, 1e-5))
        assert found == pytest.approx((factor * 1e4) ** 2 / 2 + 4.265 * factor * 1e4, rel=1e-4)

    def test_a_delta_that_floats_do_not_resolve_has_a_finite_epsilon(self):
        """It is greater than that of 1e-12, and less than without samples."""
        plan = Plan("poisson", 0.1, 100, 100, 1e-15)
        found = epsilon(1.0, plan)
        assert epsilon(1.0, replace(plan, delta=1e-12)) < found < epsilon(1.0, replace(plan, sampling="all"))
        assert epsilon(noise_for(8, plan), plan) <= 8

    @pytest.mark.slow
    def test_a_million_steps_have_an_answer(self):
        """As q sqrt(T (e - 1)) = 13.1 is the deviation of all: a Gaussian of noise 1 / 13.1, all but."""
        found = epsilon(1.0, Plan("poisson", 0.01, 10**6, 10**6, 1e-5))
        assert found == pytest.approx(13.108**2 / 2 + 4.0 * 13.108, rel=0.03)

    @pytest.mark.parametrize(
        ("q", "rounds", "noise", "poisson_", "fixed_"),
        [
            (0.1, 100, 1, 7.05, 34.2),
            (0.1, 100, 4, 0.98, 2.54),
            (0.01, 100, 1, 0.72, 6.64),
            (0.01, 10, 1, 0.38, 4.38),
        ],
    )
    def test_the_table_of_what_samples_of_a_fixed_size_cost(self, q, rounds, noise, poisson_, fixed_):
        found = [epsilon(noise, Plan(s, q, 1000, rounds, 1e-5)) for s in ("poisson", "fixed")]
        assert found == [pytest.approx(poisson_, abs=0.006), pytest.approx(fixed_, abs=0.06)]

"""What different releases cost together."""

from math import inf, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedbn_flower.privacy import accounts
from fedbn_flower.privacy.accounts import Release, composed_epsilon


def by_formula(mu, delta):
    """Epsilon of a Gaussian whose means differ by mu deviations (Balle and Wang 2018, theorem 8)."""
    return brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - np.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 1e-9, 500
    )


def test_gaussians_of_different_noise_are_one():
    """Noise 2 twice, 3 once: mu^2 = 2/4 + 1/9."""
    found = composed_epsilon([Release(2.0), Release(3.0), Release(2.0)], 1e-5)
    assert found == pytest.approx(by_formula(sqrt(2 / 4 + 1 / 9), 1e-5), rel=1e-6)


def test_samples_of_one_kind_are_accounted_as_in_a_run():
    plan = accounts.Plan("poisson", 0.1, 100, 30, 1e-5)
    assert composed_epsilon([Release(1.0, 0.1, 10)] * 3, 1e-5) == accounts.epsilon(1.0, plan)


SAMPLES, OTHERS, ALL = Release(1.0, 0.05, 200), Release(1.5, 0.2, 40), Release(4.0)


@pytest.mark.parametrize("releases", [[SAMPLES, OTHERS, ALL], [SAMPLES, ALL]])
def test_samples_of_different_kinds(releases):
    """By the accountant of dp-accounting, on a grid of its own."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for release in releases:
        event = PoissonSampledDpEvent(release.probability, GaussianDpEvent(release.noise))
        accountant.compose(event, release.count)
    assert composed_epsilon(releases, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=0.003)


def test_without_noise_there_is_no_bound_and_without_releases_nothing_is_spent():
    assert composed_epsilon([Release(2.0), Release(0.0)], 1e-5) == inf
    assert composed_epsilon([], 1e-5) == 0

"""What a mechanism's noise gives: epsilon from noise, and noise from epsilon.

Noise is always z, the standard deviation of a coordinate over the clipping norm C. What is accounted is the
sum of the clipped vectors of all participants, with that noise, once a round.

By sampling, with the adjacency that the epsilon is for:

- ``poisson``: add or remove one. Privacy loss distributions (PLD) of the subsampled Gaussian.
- ``fixed``: replace one, where the two sums differ by 2C. PLD of the dominating pair for samples without
  replacement: Dong, Roth and Su 2019 (arXiv 1905.02383), theorem 4.2; Zhu, Dong and Wang 2022 (2106.08567).
- ``all`` and ``cyclic``: add or remove one, who adds at most C to each of its k rounds. Exact: k Gaussians of
  noise z are one of z / sqrt(k), see Balle and Wang 2018 (1805.06530), theorem 8. In ``cyclic``
  k = ceil(rounds / groups), and noise may be correlated over up to ``groups`` rounds (2306.08153).

PLDs are rounded such that epsilon is never too small (Doroshenko et al. 2022, 2207.04380). They are
composed in floats, which do not tell a delta below 1e-12. There, and where a PLD has no finite epsilon, as
under next to no noise, a greater one is stated: that of the Renyi divergences below, or that of everybody
taking part.

Secure noise is discrete, of deviation s on whole vectors that move by s / z at most. No PLD of it is known in
many dimensions. Its Renyi divergences are, at whole orders a, those of the Gaussian. Let P and Q be the noise
around m and around 0, ``r = P/Q``, and ``u = 1 - q + q r`` the density over Q of their mixture M by sampling.

- ``E_Q[r^k] = exp(k (k - 1) |m|^2 / (2 s^2))`` for whole k, since k m is whole as well. ``E_Q[u^a]``, which
  gives D_a(M || Q), is a sum of these: Zhu and Wang 2019, "Poisson Subsampled Renyi Differential Privacy".
- D_a(Q || M) is not greater, as by Mironov et al. 2019 (1908.10530) for densities: ``x -> m - x`` swaps P and
  Q. For x and m - x together, with r >= 1 and ``v = 1 - q + q / r``, it says
  ``u^a - u^(1-a) >= r (v^(1-a) - v^a)``. Both are equal at a = 1, and their ratio, which is that of
  ``sinh((a - 1/2) log u)`` to ``sinh((a - 1/2) log 1/v)``, grows with a, since ``u v >= 1``.

Without sampling they hold at all orders: Canonne et al. 2020 (2004.00010), theorem 14.

What several releases of one site's data cost together, with different noise and sampling.

Each is a Gaussian mechanism, or a Poisson-subsampled one. Gaussians of noise z_1, z_2, ... are one of
``(sum_i z_i^-2)^(-1/2)``, exactly. Privacy loss distributions of the others are convolved with its.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UserError, not_allowed
from ..core.process_cache import process_cache

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Sampling = Literal["poisson", "fixed", "all", "cyclic"]
PACKAGE = "dp_accounting"
DIGITS = 4
"""Significant digits of a noise that is found."""
WHOLE_ORDERS = (*range(2, 64), *(round(64 * 1.2**k) for k in range(16)))
"""Orders of Renyi divergences, up to 986."""
EVERY_ORDER = (*(1 + k / 50 for k in range(1, 100)), *range(3, 64), *WHOLE_ORDERS[62:])
LEAST_DELTA = 1e-12
"""Of those that a composed PLD resolves."""
LEAST_EPSILON, MOST_EPSILON = 1e-9, 1e9
"""Of those that noise is found for: floats resolve no less, and more protects nobody."""
LEAST_LOGGED = 1e-100
"""Epsilon of which a search takes the logarithm, at least."""
MANY_ROUNDS = 1000
LARGEST_LOG = 700.0
"""Of a number that a float holds."""


@dataclass(frozen=True)
class Plan:
    """Who takes part in which round, and for which delta epsilon is wanted.

    Parameters
    ----------
    sampling : str
        ``poisson``, ``fixed``, ``all`` or ``cyclic``.
    probability : float
        The share q of the population in a round, in (0, 1]; of each one by itself in ``poisson``.
    population : int
        Number of clients, or of examples where these are protected.
    rounds : int
        Number of rounds.
    delta : float
        In [1e-15, 1).
    groups : int
        Number of groups that take turns in ``cyclic``; 0 otherwise.
    secure : bool
        Whether the noise is discrete, in ``poisson`` and ``all``.
    """

    sampling: Sampling
    probability: float
    population: int
    rounds: int
    delta: float
    groups: int = 0
    secure: bool = False

    @property
    def adjacency(self) -> str:
        """In what two neighbouring populations differ: ``add-or-remove-one`` or ``replace-one``."""
        return "replace-one" if self.sampling == "fixed" else "add-or-remove-one"

    @property
    def takes_part(self) -> float:
        """The probability that one takes part at all: 1 but for secret samples."""
        if self.sampling in ("all", "cyclic") or self.probability >= 1:
            return 1.0
        return -math.expm1(self.rounds * math.log1p(-self.probability))


def check_installed(key: str) -> None:
    """Raise a UserError that names a key, if the package that accounts is missing."""
    if find_spec(PACKAGE) is None:
        raise UserError(f"{key}: needs another package: pip install 'fedbn-flower[dp]'")


def check_delta(plan: Plan) -> None:
    """Refuse a delta that allows to publish all of those who take part, as rarely as they do.

    Raises
    ------
    UserError
        When it is as great as the probability to take part at all. No noise would be needed for it.
    """
    if plan.delta >= plan.takes_part:
        least = f"less than {plan.takes_part:.2g}, the probability to be in any of {plan.rounds} samples"
        raise not_allowed("dp-delta", plan.delta, f"{least}: whoever is could be published whole")


def check_epsilon(target: float) -> None:
    """Refuse an epsilon that no noise is found for.

    Raises
    ------
    UserError
        Where floats do not resolve it, or it protects nobody.
    """
    if not LEAST_EPSILON <= target <= MOST_EPSILON:
        raise not_allowed("epsilon", target, f"a number in [{LEAST_EPSILON:g}, {MOST_EPSILON:g}]")


def epsilon(noise: float, plan: Plan, rounds: int | None = None) -> float:
    """Return epsilon after a number of the plan's rounds, by default all; infinite without noise."""
    rounds = plan.rounds if rounds is None else rounds
    if rounds == 0:
        return 0.0
    if noise <= 0:
        return math.inf
    if plan.secure:
        return _renyi_epsilon(noise, plan, rounds)
    match plan.sampling:
        case "all":
            return _gaussian(noise, rounds, plan.delta)
        case "cyclic":
            return _gaussian(noise, math.ceil(rounds / plan.groups), plan.delta)
        case sampling:
            return _composed(sampling, noise, plan.probability, rounds, plan.delta)


@lru_cache(maxsize=4096)  # numbers, which the runs of a sweep share
def _composed(sampling: Sampling, noise: float, probability: float, rounds: int, delta: float) -> float:
    """Return epsilon of that many rounds with samples."""
    found = math.inf
    if delta >= LEAST_DELTA:
        with suppress(OverflowError):  # of the loss under next to no noise
            one = (_poisson if sampling == "poisson" else _fixed)(noise, probability)
            found = float(_self_composed(one, rounds).get_epsilon_for_delta(delta))
    return found if math.isfinite(found) else _greater(sampling, noise, probability, rounds, delta)


def _self_composed(one: PrivacyLossDistribution, rounds: int) -> PrivacyLossDistribution:
    """Return the PLD of many rounds. Of a sparse one dp-accounting computes ``size**rounds``: slow."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    if rounds > MANY_ROUNDS:
        add = None if one._symmetric else one._pmf_add.to_dense_pmf()
        one = PrivacyLossDistribution(one._pmf_remove.to_dense_pmf(), add)
    return one.self_compose(rounds)


def _greater(sampling: Sampling, noise: float, probability: float, rounds: int, delta: float) -> float:
    """Return an epsilon that is not too small, where a PLD gives none."""
    if sampling == "fixed":
        return _gaussian(noise / 2, rounds, delta)
    plan = Plan("poisson", probability, 0, rounds, delta)
    return min(_gaussian(noise, rounds, delta), _renyi_epsilon(noise, plan, rounds))


@process_cache(maxsize=16)
def noise_for(target: float, plan: Plan) -> float:
    """Return the smallest noise with at most this epsilon, rounded up to four significant digits.

    Raises
    ------
    UserError
        As `check_delta`, and `check_epsilon`.
    """
    check_delta(plan)
    check_epsilon(target)
    upper = 1.0
    if plan.sampling == "poisson" and plan.rounds > MANY_ROUNDS:  # a PLD of these takes a second
        while _renyi_epsilon(upper, plan, plan.rounds) > target:
            upper *= 2
    return _smallest(lambda noise: epsilon(noise, plan), target, upper)


def local_epsilon(noise: float, participations: int, delta: float) -> float:
    """Return epsilon of one client that adds the noise itself, as often as it takes part.

    Whoever reads its messages may replace all its data: they differ by 2C, and no sampling hides it.
    """
    return _gaussian(noise / 2, participations, delta) if participations else 0.0


@process_cache(maxsize=16)
def local_noise_for(target: float, participations: int, delta: float) -> float:
    """Return the smallest noise with at most this `local_epsilon`, rounded up to four significant digits.

    Raises
    ------
    UserError
        As `check_epsilon`.
    """
    check_epsilon(target)
    return _smallest(lambda noise: local_epsilon(noise, participations, delta), target)


def _smallest(epsilon_of: Callable[[float], float], target: float, upper: float = 1.0) -> float:
    """Return the smallest noise of `DIGITS` digits whose epsilon is at most the target.

    The search begins at ``upper``. On logarithms epsilon is nearly a line.
    """
    from scipy.optimize import brentq

    def excess(logarithm: float) -> float:
        return math.log(max(epsilon_of(math.exp(logarithm)), LEAST_LOGGED) / target)

    while epsilon_of(upper) > target:
        upper *= 2
    while epsilon_of(upper / 2) <= target:
        upper /= 2
    root = math.exp(float(brentq(excess, math.log(upper / 2), math.log(upper), xtol=1e-5)))
    step = 10.0 ** (math.floor(math.log10(root)) + 1 - DIGITS)
    count = math.ceil(root / step) - 1
    while epsilon_of(round(count * step, 12)) > target:
        count += 1
    return round(count * step, 12)


def _gaussian(noise: float, count: int, delta: float) -> float:
    """Return epsilon of the Gaussian mechanism with sensitivity 1, composed."""
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(noise / math.sqrt(count), delta)) if noise > 0 else math.inf


def _renyi_epsilon(noise: float, plan: Plan, rounds: int) -> float:
    from dp_accounting.rdp import compute_epsilon

    orders = EVERY_ORDER if plan.probability == 1 else WHOLE_ORDERS
    divergences = rounds * _renyi(noise, plan.probability, orders)
    return float(compute_epsilon(orders, divergences, plan.delta)[0])


@process_cache(maxsize=8)
def _renyi(noise: float, probability: float, orders: tuple[float, ...]) -> NDArray[np.float64]:
    """Return the Renyi divergences of one round of the Poisson-subsampled Gaussian."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders)
    accountant.compose(PoissonSampledDpEvent(probability, GaussianDpEvent(noise)))
    return np.asarray(accountant.rdp)


def _largest_loss(noise: float, probability: float) -> float:
    """Return a bound of one round's privacy loss, exceeded with probability 1e-32 at most."""
    return math.log1p(probability * math.expm1(min(noise**-2 / 2 + 12 / noise, LARGEST_LOG)))


def _interval(noise: float, probability: float) -> float:
    """Return the grid of a PLD: a twentieth of the standard deviation of one round's privacy loss.

    So rounding adds about 0.1 % to epsilon, for any number of rounds. A grid has at most 100,000 points.
    """
    deviation = probability * math.sqrt(math.expm1(min(noise**-2, LARGEST_LOG)))
    finest, coarsest = _largest_loss(noise, probability) / 1e5, 0.01 * max(1.0, noise**-2)
    return max(finest, min(deviation / 20, coarsest))


@process_cache(maxsize=8)
def _poisson(noise: float, probability: float) -> PrivacyLossDistribution:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    interval = _interval(noise, probability)
    return from_gaussian_mechanism(noise, sampling_prob=probability, value_discretization_interval=interval)


@process_cache(maxsize=8)
def _fixed(noise: float, probability: float) -> PrivacyLossDistribution:
    """Return the PLD of one round without replacement. It is the same in both directions."""
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    interval, distance = _interval(noise / 2, probability), 2 / noise
    count = math.ceil(_largest_loss(noise / 2, probability) / interval)
    grid = interval * np.arange(count + 1)
    deltas = probability * _hockey_stick(np.log1p(np.expm1(grid) / probability), distance)
    # Symmetry: delta(-e) = 1 - exp(-e) + exp(-e) delta(e).
    mirrored = -np.expm1(-grid) + np.exp(-grid) * deltas
    both = np.concatenate([mirrored[:0:-1], deltas])
    return PrivacyLossDistribution(
        create_pmf_pessimistic_connect_dots_fixed_gap(interval, -count, count, both)
    )


def _hockey_stick(epsilons: NDArray[np.float64], distance: float) -> NDArray[np.float64]:
    """Return delta by epsilon of two Gaussians of variance 1 at a distance (1805.06530, theorem 8)."""
    from scipy.special import log_ndtr

    first = log_ndtr(distance / 2 - epsilons / distance)
    second = epsilons + log_ndtr(-distance / 2 - epsilons / distance)
    return np.asarray(np.exp(first) * -np.expm1(np.minimum(second - first, 0.0)))


MOST_POINTS = 1e6
"""Of the grid of a privacy loss distribution."""


@dataclass(frozen=True)
class Release:
    """What left a site, ``count`` times.

    Parameters
    ----------
    noise : float
        The deviation of the noise over what one of those protected can change; 0 if nobody is.
    probability : float
        With which each of them is in a sample, by itself.
    count : int
        How often: steps of training.
    """

    noise: float
    probability: float = 1.0
    count: int = 1


def composed_epsilon(releases: Iterable[Release], delta: float) -> float:
    """Return epsilon of all releases together; infinite if one of them has no noise."""
    counts: Counter[tuple[float, float]] = Counter()
    for release in releases:
        counts[release.noise, release.probability] += release.count
    if any(noise <= 0 for noise, _ in counts):
        return math.inf
    gaussian = sum(count / noise**2 for (noise, share), count in counts.items() if share == 1)
    sampled = sorted((key, count) for key, count in counts.items() if key[1] < 1)
    return _epsilon(gaussian and gaussian**-0.5, tuple(sampled), delta)


@lru_cache(maxsize=256)
def _epsilon(gaussian: float, sampled: tuple[tuple[tuple[float, float], int], ...], delta: float) -> float:
    """Return epsilon of one Gaussian of this noise, 0 for none, and of samples, by noise and share."""
    if not sampled:
        return epsilon(gaussian, Plan("all", 1.0, 1, 1, delta)) if gaussian else 0.0
    if len(sampled) == 1 and not gaussian:
        (((noise, share), count),) = sampled
        return epsilon(noise, Plan("poisson", share, 1, count, delta))
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    parts = [*sampled, *([((gaussian, 1.0), 1)] if gaussian else [])]
    interval = max(
        min(_interval(noise, share) for (noise, share), _ in parts),
        max(noise**-2 / 2 + 12 / noise for (noise, _), _ in parts) / MOST_POINTS,
    )
    losses = [
        from_gaussian_mechanism(
            noise, sampling_prob=share, value_discretization_interval=interval
        ).self_compose(count)
        for (noise, share), count in parts
    ]
    return float(reduce(lambda one, other: one.compose(other), losses).get_epsilon_for_delta(delta))

"""What several releases of one site's data cost together, with different noise and sampling.

Each is a Gaussian mechanism, or a Poisson-subsampled one. Gaussians of noise z_1, z_2, ... are one of
``(sum_i z_i^-2)^(-1/2)``, exactly. Privacy loss distributions of the others are convolved with its.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce

from .accounts import Plan, _interval, epsilon

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

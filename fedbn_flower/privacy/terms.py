"""The terms of a run with client-level privacy: what is done in a round, and what is accounted for it.

A clip that goes to a quantile of the norms is by Andrew et al. 2021 (arXiv 1905.03871), algorithm 1.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ..core.errors import not_allowed
from .accounts import Plan, Sampling, epsilon
from .noise import STEPS, CorrelatedNoise
from .private_run import ADAPTIVE

RATE = 0.2
QUANTILE = 0.5
FIRST_CLIP = 0.1
COUNT_SHARE = 20
"""By what the expected number of answers is divided for the noise on the count, as the paper proposes."""


@dataclass(frozen=True)
class AdaptiveClip:
    """``C_{t+1} = C_t exp(-0.2 (b - 1/2))``, so half of the updates come to be longer than C.

    b is the share of updates of length C_t at most: ``1/2 + (sum_i (b_i - 1/2) + N(0, sigma_b^2)) / n``.

    Parameters
    ----------
    count_noise : float
        sigma_b, the deviation of the noise on the count.
    """

    count_noise: float

    @classmethod
    def for_cohort(cls, cohort: float) -> "AdaptiveClip":
        """Return it for an expected number of answers."""
        return cls(cohort / COUNT_SHARE)

    def is_possible(self, noise: float) -> bool:
        """Return whether the count, under its noise, leaves the updates any of what the noise z costs."""
        return 2 * self.count_noise > noise

    def check(self, noise: float) -> None:
        """Refuse noise that leaves the updates none; see `is_possible`.

        Raises
        ------
        UserError
            Says how many clients a round it needs.
        """
        if not self.is_possible(noise):
            least = COUNT_SHARE * noise / 2
            wanted = f"a number: with noise {noise:g} it needs more than {least:.0f} clients a round"
            raise not_allowed("dp-clip", ADAPTIVE, wanted)

    def noise_for_updates(self, noise: float) -> float:
        """Return z_Delta: noise with which updates and count together cost as much as z (theorem 1).

        ``z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2)``: one client moves the count by 1/2.
        """
        return float((noise**-2 - (2 * self.count_noise) ** -2) ** -0.5)

    def next_clip(self, clip: float, share_within: float) -> float:
        """Return C_{t+1}."""
        return clip * math.exp(-RATE * (share_within - QUANTILE))


GUARANTEE, SIMULATED, HYPOTHETICAL = "guarantee", "simulated", "hypothetical"
"""What is claimed: epsilon holds; it would under a secret key; it would with more clients than there are."""
SUMMED = "client, from the server too"
"""The notion of a run whose clients add the noise to a sum, which is all that the server sees."""


@dataclass(frozen=True)
class Terms:
    """Fixed when a run begins, and in the first line of its ledger.

    Parameters
    ----------
    sampling : str
        ``poisson``, ``fixed``, ``all`` or ``cyclic``: who trains in a round.
    probability : float
        q, the share of the clients that trains in a round; of each one by itself in ``poisson``.
    num_answers : float
        n = q N, the expected number of answers, a public constant.
    noise : float
        z, which is accounted: the deviation over C of the noise on the sum.
    clip : float
        C of the first round.
    adaptive : bool
        Whether C adapts.
    delta : float
        For which epsilon is stated.
    budget : float
        The epsilon that the noise was found for, at which the run ends; 0 where the noise was given.
    rounds : int
        How many rounds were planned.
    cohort, population : float
        What is accounted and decides the noise: n and N, or in a hypothetical run greater numbers.
    claim : str
        `GUARANTEE`, `SIMULATED` or `HYPOTHETICAL`.
    groups, bands : int
        In ``cyclic``, the number of groups that take turns, and over how many rounds noise is correlated; 0
        otherwise.
    secure : bool
        Whether the noise is discrete, on a grid, and drawn exactly.
    """

    sampling: Sampling
    probability: float
    num_answers: float
    noise: float
    clip: float
    adaptive: bool
    delta: float
    budget: float
    rounds: int
    cohort: float
    population: int
    claim: str
    groups: int = 0
    bands: int = 0
    secure: bool = False

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Terms":
        """Return the terms in a ledger."""
        return cls(**record)

    def as_record(self) -> dict[str, Any]:
        """Return the terms for a ledger."""
        optional = ("groups", "bands", "secure")
        return {name: value for name, value in asdict(self).items() if value or name not in optional}

    @property
    def clients(self) -> int:
        """N, the number of clients of the run."""
        return round(self.num_answers / self.probability)

    @property
    def plan(self) -> Plan:
        """What is accounted."""
        share = min(1.0, self.cohort / self.population)
        return Plan(self.sampling, share, self.population, self.rounds, self.delta, self.groups, self.secure)

    def epsilon(self, published: int) -> float:
        """Return epsilon after so many rounds."""
        return epsilon(self.noise, self.plan, published)

    @property
    def adaptive_clip(self) -> AdaptiveClip | None:
        """How C adapts; None for a fixed one."""
        return AdaptiveClip.for_cohort(self.cohort) if self.adaptive else None

    @cached_property
    def correlated(self) -> CorrelatedNoise | None:
        """How the noise of rounds is correlated; None if it is independent."""
        return CorrelatedNoise(self.rounds, self.bands) if self.bands > 1 else None

    def noise_std(self, clip: float) -> float:
        """Return the deviation of independent noise on each entry of the mean, ``z C / n``."""
        adaptive = self.adaptive_clip
        multiplier = adaptive.noise_for_updates(self.noise) if adaptive else self.noise
        return multiplier * clip / self.cohort

    def step(self, clip: float) -> float:
        """Return the grid of the sum under secure noise, a 2^20th of the noise's deviation; 0 without."""
        return self.noise_std(clip) * self.num_answers / STEPS if self.secure else 0.0

    @property
    def longest(self) -> float:
        """C in steps of that grid: what one client may move the sum by."""
        return self.clip / self.step(self.clip)

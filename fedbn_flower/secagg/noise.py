"""Noise that nobody can take away: each client adds a share of it before it masks.

Kairouz, Liu and Steinke 2021, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation" (arXiv 2102.06387). A client adds N_Z(0, s^2) to each of its whole numbers, exactly drawn. The
sum of n of them is no discrete Gaussian, but one of variance ``n s^2`` up to a factor of ``exp(tau)`` in the
probabilities of each entry, with

    tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 s^2 k / (k + 1)).

So a sum that one client moves by D at most has, over d entries and at each order a > 1, a Renyi divergence of

    min(a D^2 / (2 n s^2) + tau d,  (a / 2) (D / (sqrt(n) s) + tau sqrt(d))^2)

at most (proposition 14; its third term, of the L1 norm, is left out: it is hardly ever the least). With
Poisson sampling all probabilities, those of the mixture too, are within ``exp(tau d)`` of the discrete
Gaussian's, whose divergence R_a `privacy.accounts` knows: ``R_a + tau d (2 a - 1) / (a - 1)`` at most.

With a clip that adapts, a vector has one number more: a half of 1 or of -1, by whether the update was within
the clip (`privacy.adaptive_clip`). It has the same noise, and D is the length of all: the halves are as many
steps as make the noise that is counted sigma_b.

What is counted is the noise of those who are honest and survive. The client that is protected is one of them.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np

from ..privacy.accounts import WHOLE_ORDERS, Plan, _renyi, _smallest, check_delta, check_epsilon
from ..privacy.keys import LENGTH, SecretNumbers
from ..privacy.noise import STEPS, Words, discrete_gaussian
from ..privacy.terms import AdaptiveClip
from .cryptography import DTYPES, Vector
from .integers import TAILS, Grid, length_of_rounded

EVERY_ORDER = (*(1 + k / 50 for k in range(1, 1000)), *(float(order) for order in WHOLE_ORDERS[19:]))
"""Orders of Renyi divergences without a secret sample: steps of 1/50 up to 21."""
LEAST_STEPS = 64
"""Of s: tau is then below 10^-17000, and rounding next to nothing beside the noise."""
MOST_LOSS = 0.01
"""Of the clip, by which rounding may lengthen what a client can change, before a sum has 64 bits."""


@dataclass(frozen=True)
class NoiseShares:
    """The noise of a round's sum, and what of it each client adds.

    Parameters
    ----------
    grid : Grid
        Of the clients' numbers.
    deviation : int
        s: of each entry of a client's noise, in steps.
    survivors : int
        The fewest whose sum is ever taken.
    honest : float
        The share of them that tell nobody their noise, in (0, 1].
    half : int
        Of a number after the update, the steps of a half; 0 without one.
    """

    grid: Grid
    deviation: int
    survivors: int
    honest: float = 1.0
    half: int = 0

    @classmethod
    def plan(
        cls,
        noise: float,
        clip: float,
        clients: int,
        survivors: int,
        entries: int,
        honest: float = 1.0,
        count_noise: float = 0.0,
    ) -> NoiseShares:
        """Return the shares for a noise on the sum of those who are honest, over what one client can change.

        The sum has 32 bits if s is then at least 64 steps and rounding takes no more than a hundredth, and 64
        bits otherwise.

        Parameters
        ----------
        noise : float
            z > 0.
        clip : float
            The length of each client's vector, at most.
        clients : int
            How many may be summed.
        survivors : int
            The fewest whose sum is ever taken, from 1 to ``clients``.
        entries : int
            How many numbers a vector has.
        honest : float
            In (0, 1].
        count_noise : float
            sigma_b, of a count of updates within the clip; 0 without one. The noise is then that of both.

        Raises
        ------
        ValueError
            When there is no such grid, or a number is out of its range.
        """
        adaptive = AdaptiveClip(count_noise)
        if count_noise and not adaptive.is_possible(noise):
            raise ValueError(f"noise {noise} with {count_noise} on a count: it leaves the updates none")
        if not (noise > 0 and 1 <= survivors <= clients and 0 < honest <= 1):
            raise ValueError(
                f"noise {noise} of {survivors} of {clients}, {honest} of them honest: out of range"
            )
        noise_of_update = adaptive.noise_for_updates(noise) if count_noise else noise
        exponent = STEPS.bit_length() - 1
        candidates = [(32, 1 << e) for e in range(exponent, LEAST_STEPS.bit_length() - 2, -1)]
        for bits, deviation in [*candidates, (64, STEPS)]:
            # What one client can change is `norm` steps long: z of it is the deviation of the honest noise.
            counted = deviation * math.sqrt(num_honest(survivors, honest))
            norm = counted / noise_of_update
            halves = counted / (2 * count_noise) if count_noise else 0.0
            half = math.floor(halves)
            length = length_of_rounded(norm, entries)
            spare = math.ceil(TAILS * deviation * math.sqrt(clients))
            if (
                length >= 1
                and norm <= length * (1 + MOST_LOSS)
                and halves <= half * (1 + MOST_LOSS)
                and clients * max(math.ceil(length), half) + spare < 1 << bits - 1
            ):
                grid = Grid.of_length(length, clip, clients, entries, bits, spare)
                return cls(grid, deviation, survivors, honest, half)
        raise ValueError(f"noise {noise} on {entries} numbers of {clients} clients: no grid has room for it")

    @property
    def counted(self) -> int:
        """n: how many clients' noise is counted on."""
        return num_honest(self.survivors, self.honest)

    @property
    def noise(self) -> float:
        """z: the deviation of the noise that is counted on, over what one client can change."""
        return self.deviation * math.sqrt(self.counted) / self.norm

    @property
    def norm(self) -> float:
        """How far one client moves the sum, in steps."""
        return math.hypot(self.grid.norm, self.half) if self.half else self.grid.norm

    @property
    def entries(self) -> int:
        """How many numbers have noise."""
        return self.grid.entries + (self.half > 0)

    def draw(self, words: Words | None = None) -> Vector:
        """Return a client's noise, to be added to its numbers modulo ``2^bits``.

        Parameters
        ----------
        words : Callable, optional
            The random bits; by default a keystream under a new key of the operating system.
        """
        words = words or SecretNumbers(secrets.token_bytes(LENGTH)).words
        numbers = discrete_gaussian(words, self.entries, self.deviation)
        return numbers.astype(f"i{self.grid.bits // 8}").view(DTYPES[self.grid.bits])

    def epsilon(self, plan: Plan, rounds: int | None = None) -> float:
        """Return epsilon after a number of the plan's rounds, by default all; see `sum_epsilon`."""
        return sum_epsilon(self.deviation, self.counted, self.norm, self.entries, plan, rounds)


def num_honest(survivors: int, honest: float) -> int:
    """Return how many of the survivors are honest at least."""
    return max(1, math.ceil(survivors * honest - 1e-9))


def tau(deviation: float, count: int) -> float:
    """Return what the sum of discrete Gaussians differs by from one, in each entry (arXiv 2102.06387).

    Parameters
    ----------
    deviation : float
        s of each, from 1/2 on.
    count : int
        n.
    """
    k = np.arange(1, count)
    return 10 * float(np.sum(np.exp(-2 * (math.pi * deviation) ** 2 * k / (k + 1))))


def sum_epsilon(
    deviation: float, count: int, norm: float, entries: int, plan: Plan, rounds: int | None = None
) -> float:
    """Return epsilon of rounds that publish a sum with the noise of many clients.

    Parameters
    ----------
    deviation : float
        s of one client's noise, in steps.
    count : int
        n: the clients whose noise is counted on.
    norm : float
        How far one client moves the sum, in steps.
    entries : int
        d: of the sum.
    plan : Plan
        Who takes part. Of ``poisson`` whoever sees the messages sees the sample too, and is to be accounted
        as ``all``; ``fixed`` is.
    rounds : int, optional
        How many; by default the plan's.
    """
    from dp_accounting.rdp import compute_epsilon

    rounds = plan.rounds if rounds is None else rounds
    if rounds == 0:
        return 0.0
    noise, off = deviation * math.sqrt(count) / norm, tau(deviation, count)
    if plan.sampling == "poisson" and plan.probability < 1:
        orders = np.array(WHOLE_ORDERS, float)
        divergences = _renyi(noise, plan.probability, WHOLE_ORDERS) + off * entries * (2 * orders - 1) / (
            orders - 1
        )
    else:
        orders = np.array(EVERY_ORDER)
        divergences = np.minimum(
            orders / 2 / noise**2 + off * entries, orders / 2 * (1 / noise + off * math.sqrt(entries)) ** 2
        )
        rounds = math.ceil(rounds / plan.groups) if plan.sampling == "cyclic" else rounds
    return float(compute_epsilon(orders, rounds * divergences, plan.delta)[0])


def sum_noise_for(target: float, plan: Plan, survivors: int, entries: int, honest: float = 1.0) -> float:
    """Return the smallest noise with at most this epsilon, rounded up to four significant digits.

    The parameters are those of `NoiseShares.plan`; s is taken to be the least that there is, where tau is
    greatest.

    Raises
    ------
    UserError
        As `accounts.noise_for`.
    """
    check_delta(plan)
    check_epsilon(target)
    count = num_honest(survivors, honest)

    def spent(noise: float) -> float:
        return sum_epsilon(LEAST_STEPS, count, LEAST_STEPS * math.sqrt(count) / noise, entries, plan)

    return _smallest(spent, target)

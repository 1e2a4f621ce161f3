"""``dp`` client with ``secagg``: clients are protected from the server too, by noise in shares.

A sum is only taken of as many clients as the noise is divided among, two thirds of a round's or
``secagg-min``: with fewer there is no result, rather than one with too little noise. Nothing else of a
client's answer leaves it, no metrics and no number of examples. The server sees who takes part, so no sample
hides anybody: a client's epsilon is that of its own rounds, and the run's is the greatest.

A clip that adapts (`privacy.adaptive_clip`) is told with the model; the count that moves it is one more
number of the sum, with noise in shares too. Whatever clip a server tells, the noise goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any

from fedbn_flower.clients import Update

from ..core.errors import not_allowed
from ..core.process_cache import process_cache
from ..privacy.accounts import Plan, Release, check_installed
from ..privacy.client_privacy import SECURE
from ..privacy.floors import Refused
from ..privacy.in_words import outside
from ..privacy.keys import Key
from ..privacy.ledger import Charge
from ..privacy.private_run import NO_SEED, PrivateRun
from ..privacy.run_privacy import PUBLIC_KEY, PrivacyAtClients, notices_of_delta, notices_of_noise
from ..privacy.terms import FIRST_CLIP, GUARANTEE, SIMULATED, SUMMED, AdaptiveClip
from .conflicts import LEAST_CLIP, MOST_CLIP, ON
from .cryptography import Vector
from .graph import TOLERANCE, default_k
from .noise import NoiseShares, num_honest, sum_epsilon, sum_noise_for
from .plan import Plan as VectorPlan

MOST_ENTRIES = 2**40
"""Of a model. The noise of an epsilon is the same for all: tau is 0 as a float, and so is it times this."""
UNMASKED = "secagg: 'plain' masks nothing, so epsilon is simulated: the server sees each client's numbers"


def survivors_of(clients_a_round: int, least: int) -> int:
    """Return of how many clients a sum is at least: among so many its noise is divided.

    Parameters
    ----------
    clients_a_round : int
        How many train in a round.
    least : int
        ``secagg-min``.
    """
    return max(least, clients_a_round - int(TOLERANCE * clients_a_round + 1e-9))


def least_at_client(config: PrivateRun, whole: bool) -> int:
    """Return of how many clients a client lets a sum be; it knows of its neighbours only.

    With few clients these are all others, and so they are with ``whole``.
    """
    clients = config.clients_a_round
    if config.dp == "none" or clients < 2 or (not whole and default_k(clients) < clients - 1):
        return config.secagg_min
    return survivors_of(clients, config.secagg_min)


def noise_of(config: PrivateRun) -> float:
    """Return z; with ``dp-epsilon`` it is found for clients that train in every round.

    Raises
    ------
    UserError
        When the package that accounts is missing, or as `sum_noise_for`.
    """
    check_installed("dp")
    if config.dp_noise:
        return config.dp_noise
    survivors = survivors_of(config.clients_a_round, config.secagg_min)
    return _noise_for(config.dp_epsilon, _plan(config), survivors, MOST_ENTRIES, config.dp_honest)


_noise_for = process_cache(maxsize=16)(sum_noise_for)


def adaptive_of(config: PrivateRun) -> AdaptiveClip | None:
    """Return how the clip adapts; None for a fixed one.

    Raises
    ------
    UserError
        As `noise_of`; when there are too few clients for the count under its noise.
    """
    if config.clip:
        return None
    adaptive = AdaptiveClip.for_cohort(config.clients_a_round)
    adaptive.check(noise_of(config))
    return adaptive


def shares_of(config: PrivateRun, entries: int) -> NoiseShares:
    """Return the shares of the noise on the sum of updates with so many entries.

    Where the clip adapts, the grid is that of the first round; in steps it is the same in all.

    Raises
    ------
    UserError
        As `adaptive_of`; when updates of that many entries leave no grid for it.
    """
    found = noise_in(config)
    try:
        return NoiseShares.plan(
            clip=config.clip or FIRST_CLIP, clients=config.num_training, entries=entries, **found
        )
    except ValueError:
        noise = found["noise"]
        wanted = f"less, with secagg: rounding {entries} parameters would take too much of dp-clip"
        raise not_allowed("dp-noise", noise, wanted) from None


def share_of(config: PrivateRun, entries: int, client: int, server_round: int) -> Vector:
    """Return what a client adds to its numbers; under a secret key it is another at each call."""
    key = Key() if config.dp_seed == NO_SEED else Key.of_seed(config.dp_seed).of_client(client)
    return shares_of(config, entries).draw(key.numbers(server_round, 1, "noise").words)


def noise_in(config: PrivateRun) -> dict[str, Any]:
    """Return what a `Plan` says of a run's noise."""
    survivors, adaptive = survivors_of(config.clients_a_round, config.secagg_min), adaptive_of(config)
    count_noise = adaptive.count_noise if adaptive else 0.0
    shares = {"noise": noise_of(config), "survivors": survivors, "honest": config.dp_honest}
    return {**shares, "count_noise": count_noise}


def check_noise(config: PrivateRun, plan: VectorPlan, update: Update) -> None:
    """Refuse to send with other noise than the run's configuration at the client asks for.

    Parameters
    ----------
    config : PrivateRun
        As the client has it.
    plan : Plan
        What the server says.
    update : Update
        What is about to be sent.

    Raises
    ------
    Refused
        When they differ, a clip that adapts is out of its range, or the update has records of its own, which
        would have no noise.
    """
    if update.records:
        raise Refused(f"privacy: dp 'client' does not protect the record {min(update.records)!r}")
    told = {} if config.clip is None else {"clip": config.clip}
    for name, wanted in {**told, **noise_in(config)}.items():
        if (asked := getattr(plan, name)) != wanted:
            name_told = name.replace("_", "-")
            raise Refused(f"privacy: the server asks for {name_told} {asked!r}, and the run has {wanted!r}")
    if not LEAST_CLIP <= plan.clip <= MOST_CLIP:
        within = f"from {LEAST_CLIP:g} to {MOST_CLIP:g}"
        raise Refused(f"privacy: the server asks for clip {plan.clip!r}, and it is to be {within}")


class SummedPrivacy(PrivacyAtClients):
    """The privacy of one run, as its server states it.

    Parameters
    ----------
    config : PrivateRun
        With ``dp`` client and ``secagg``.
    parameters : int
        How many numbers of the model travel and are trained.

    Raises
    ------
    UserError
        As `shares_of`.
    """

    notion = SUMMED
    adjacency = "add-or-remove-one"
    sampling = "none"
    lists_clients = True

    def __init__(self, config: PrivateRun, parameters: int) -> None:
        super().__init__(config, noise_of(config))
        self.parameters = parameters
        self.shares = shares_of(config, parameters)
        self.adaptive = adaptive_of(config)

    def notices(self) -> Iterator[str]:
        """Yield warnings of what is allowed but hardly meant, one line each."""
        config, survivors = self.config, self.shares.survivors
        yield from notices_of_delta(config.dp_delta, config.num_training)
        share = survivors * sqrt(config.dp_honest / self.parameters) / self.noise
        yield from notices_of_noise(str(survivors), self.noise, self.parameters, share)
        if config.dp_seed != NO_SEED:
            yield PUBLIC_KEY
        if config.secagg != ON:
            yield UNMASKED

    def epsilon(self, rounds: int, metrics: Release | None = None) -> float:
        """Return epsilon of a client that has trained in so many rounds."""
        return self.shares.epsilon(_plan(self.config), rounds)

    @staticmethod
    def epsilon_of(found: Mapping[str, Any], rounds: int, delta: float) -> float:
        """Return the same at any delta, of a run whose `summary` is known."""
        count, steps = found["honest-survivors"], found["grid-steps"]
        norm = steps * sqrt(count) / float(found["noise"])
        return sum_epsilon(steps, count, norm, MOST_ENTRIES, Plan("all", 1.0, 1, rounds, delta))

    def noise_std(self, charge: Charge) -> float:
        """Return the deviation of the noise on each entry of the mean of the fewest clients."""
        of_first = self.shares.deviation * self.shares.grid.step / sqrt(self.shares.survivors)
        return of_first * (charge.clip / self.shares.grid.most)

    def adapt(self, within: float) -> None:
        """Move a clip that adapts after a round's sum.

        Parameters
        ----------
        within : float
            The sum of b_i - 1/2 over the clients, with its noise.
        """
        if self.adaptive:
            share = 0.5 + within / self.config.clients_a_round
            self.clip = min(max(self.adaptive.next_clip(self.clip, share), LEAST_CLIP), MOST_CLIP)

    def record(self) -> dict[str, Any]:
        """Return the terms for the first line of a ledger."""
        shares = {"survivors": self.shares.survivors, "honest": self.shares.honest}
        return super().record() | shares | self._of_clip()

    def _of_clip(self) -> dict[str, Any]:
        return {"adaptive-clip": True, "count-noise": self.adaptive.count_noise} if self.adaptive else {}

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` says of it."""
        shares, config = self.shares, self.config
        protected = config.dp_seed == NO_SEED and config.secagg == ON
        return super().summary() | {
            "claim": GUARANTEE if protected else SIMULATED,
            "participations": self._participations(),
            "survivors": shares.survivors,
            "honest": shares.honest,
            "honest-survivors": num_honest(shares.survivors, shares.honest),
            **self._of_clip(),
            **SECURE,
            "grid-steps": shares.deviation,
            "outside": outside(SUMMED),
        }


def _plan(config: PrivateRun) -> Plan:
    return Plan("all", 1.0, config.num_training, config.rounds, config.dp_delta)

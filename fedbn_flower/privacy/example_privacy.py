"""Example-level differential privacy of one run: DP-SGD at each client, which trusts nobody but itself.

Epsilon is the greatest of the clients' (parallel composition), as if each trained in every round.
Neighbours differ in an example that is replaced by nothing: the number of examples is public, and sampling
goes by it. With ``dp-unit`` all examples of a unit are such an example, and the number of units is public.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedbn_flower.clients.modules.dp_sgd import ExampleMechanism

from ..core.errors import UserError
from ..core.ground.wire import DP_NOISE
from ..core.process_cache import process_cache
from .accounts import Plan, Release, check_delta, check_installed, composed_epsilon, epsilon, noise_for
from .in_words import outside
from .keys import Key
from .private_run import NO_SEED, PrivateRun
from .run_privacy import PUBLIC_KEY, PrivacyAtClients

NOTION = "example, at each client"
UNIT_NOTION = "unit, at each client"


@dataclass(frozen=True)
class ExampleTerms:
    """What every client does, and what is accounted for it.

    Parameters
    ----------
    noise : float
        z, the deviation of the noise on a batch's sum of clipped gradients over the clip.
    clip : float
        C, the bound on an example's or unit's gradient.
    plans : tuple[Plan, ...]
        Of the clients that can have the greatest epsilon; a plan's rounds are steps of the whole run.
    rounds : int
        Of the run, for which the plans are.
    """

    noise: float
    clip: float
    plans: tuple[Plan, ...]
    rounds: int

    def epsilon(self, rounds: int, metrics: Release | None = None) -> float:
        """Return the greatest epsilon of a client that has trained in so many rounds, with its metrics."""
        steps = [(plan, plan.rounds // self.rounds * rounds) for plan in self.plans]
        if metrics:
            of_training = (Release(self.noise, plan.probability, count) for plan, count in steps)
            return max(composed_epsilon([one, metrics], self.plans[0].delta) for one in of_training)
        return max(epsilon(self.noise, plan, count) for plan, count in steps)

    def mechanism_for(self, seed: int, partition_id: int) -> partial[ExampleMechanism]:
        """Return a client's mechanism, by round number; ``seed`` is that of the run's ``dp-seed``."""
        return partial(_mechanism, self.clip, self.noise, seed, partition_id)


def _mechanism(
    clip: float, noise: float, seed: int, partition_id: int, server_round: int
) -> ExampleMechanism:
    """Return a mechanism. Without a public seed its key is new each time, and nobody keeps it."""
    key = Key() if seed == NO_SEED else Key.of_seed(seed).of_client(partition_id)
    return ExampleMechanism(clip, noise, key.numbers(server_round, 1, "examples"))


@process_cache(maxsize=4)
def terms_of(config: PrivateRun, sizes: frozenset[int]) -> ExampleTerms:
    """Return the terms for clients with so many examples or units; with ``dp-epsilon`` the noise is found.

    Raises
    ------
    UserError
        When the package that accounts is missing, or delta allows everything.
    """
    check_installed("dp")
    assert config.clip
    plans, noise = plans_of(config, sizes), config.dp_noise
    if plans:
        check_delta(plans[0])
    if config.dp_epsilon:
        for plan in plans:
            if not noise or epsilon(noise, plan) > config.dp_epsilon:
                noise = noise_for(config.dp_epsilon, plan)
    return ExampleTerms(noise, config.clip, plans, config.rounds)


def plans_of(config: PrivateRun, sizes: frozenset[int]) -> tuple[Plan, ...]:
    """Return the plans of clients, from the greatest sampling probability on.

    One that takes no more steps than another, with no greater probability, has no greater epsilon: left out.
    """
    plans: list[Plan] = []
    for size in sorted(sizes - {0}):
        if not plans or plan_of(config, size).rounds > plans[-1].rounds:
            plans.append(plan_of(config, size))
    return tuple(plans)


def plan_of(config: PrivateRun, size: int) -> Plan:
    """Return the plan of a client with so many examples or units; its rounds are steps of the whole run."""
    batch = min(config.batch_size or size, size)
    one_is_left = batch > 1 and size > batch and size % batch == 1  # it makes no batch of its own
    steps = config.rounds * config.local_epochs * (-(-size // batch) - one_is_left)
    return Plan("poisson", batch / size, size, steps, config.dp_delta)


def release_of_round(config: PrivateRun, size: int, noise: float) -> Release:
    """Return what one round releases of a client with so many examples or units."""
    plan = plan_of(config, size)
    return Release(noise, plan.probability, plan.rounds // config.rounds)


class ExamplePrivacy(PrivacyAtClients):
    """The privacy of one run, as its server states it; of units with ``dp-unit``.

    Parameters
    ----------
    config : PrivateRun
        With ``dp`` example.
    terms : ExampleTerms, optional
        The run's; None where only the sites know how many examples they have, until `learn`.
    """

    notion = NOTION
    adjacency = "example-replaced-by-nothing"
    sampling = "poisson"

    def __init__(self, config: PrivateRun, terms: ExampleTerms | None) -> None:
        super().__init__(config, terms.noise if terms else config.dp_noise)
        self.known = terms
        self._sizes: dict[int, int] = {}
        if config.dp_unit:
            self.notion, self.adjacency = UNIT_NOTION, "unit-replaced-by-nothing"

    def record(self) -> dict[str, Any]:
        """Return the terms for the first line of a ledger."""
        return super().record() | ({"unit": self.config.dp_unit} if self.config.dp_unit else {})

    @property
    def terms(self) -> ExampleTerms:
        """The run's terms.

        Raises
        ------
        UserError
            When they are not known: the sites were not asked.
        """
        if not self.known:
            raise UserError("dp: what sites have to account is known once they have said their sizes")
        return self.known

    def learn(self, sizes: Mapping[int, int]) -> None:
        """Find the terms for sites with so many examples or units, by partition, beside those known."""
        self._sizes |= sizes
        self.known = terms_of(self.config, frozenset(self._sizes.values()))
        self.noise = self.known.noise

    def lacks(self, clients: Iterable[int]) -> bool:
        """Return whether some of these clients may have a greater epsilon than is stated.

        These are sites that joined since the others were asked. With ``dp-epsilon`` each refuses itself what
        would be more for it.
        """
        return bool(self._sizes) and not self.config.dp_epsilon and not self._sizes.keys() >= {*clients}

    def told(self) -> dict[str, float]:
        """Return the noise, which sites compare with what they account."""
        return {DP_NOISE: self.noise}

    def notices(self) -> Iterator[str]:
        """Yield warnings of what is allowed but hardly meant, one line each."""
        smallest = self.known.plans[0].population if self.known else 0
        if smallest and self.config.dp_delta > 1 / smallest:
            yield (
                f"dp-delta: {self.config.dp_delta:g} is above 1/{smallest}, for the client with {smallest} "
                f"{self._counted}: to publish one of them whole would be within it"
            )
        if self.config.dp_seed != NO_SEED:
            yield PUBLIC_KEY

    def epsilon(self, rounds: int, metrics: Release | None = None) -> float:
        """Return the greatest epsilon of a client that has trained in so many rounds, with its metrics."""
        return self.terms.epsilon(rounds, metrics)

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` says of it."""
        unit = self.config.dp_unit
        return super().summary() | {
            **({"unit": f"all rows with one value of {unit!r}"} if unit else {}),
            "accounted": [
                {self._counted: plan.population, "probability": plan.probability, "steps": plan.rounds}
                for plan in self.terms.plans
            ],
            "outside": outside(UNIT_NOTION if unit else NOTION),
        }

    @property
    def _counted(self) -> str:
        """What is protected, and counted."""
        return "units" if self.config.dp_unit else "examples"

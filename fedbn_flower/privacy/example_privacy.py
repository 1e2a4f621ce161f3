"""Example-level differential privacy of one run: DP-SGD at each client, which trusts nobody but itself.

Epsilon is the greatest of the clients' (parallel composition), as if each trained in every round.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedbn_flower.clients.modules.dp_sgd import ExampleMechanism

from ..config.keys.privacy import NO_SEED
from ..config.run_config import RunConfig
from ..core.errors import not_allowed
from ..core.process_cache import process_cache
from . import ledger
from .accounts import Plan, check_installed, epsilon, noise_for
from .keys import Key
from .ledger import Charge, Ledger
from .mechanism import ClientMechanism
from .run_privacy import PUBLIC_KEY, RunPrivacy
from .terms import GUARANTEE, SIMULATED

NOTION = "example, at each client"
OUTSIDE = (
    "metrics of training and evaluation: metrics.csv, clients.csv, the summary, trackers and logs",
    "how many examples a client has, how many steps it takes, and whether it answers",
    "several examples of one person: their epsilons add up",
    "what stays at a client, and checkpoints, which hold the clients' memories",
    "attacks on the rounding of floating-point noise",
)
"""What the guarantee does not cover."""


@dataclass(frozen=True)
class ExampleTerms:
    """What every client does, and what is accounted for it.

    Parameters
    ----------
    noise : float
        z, the deviation of the noise on a batch's sum of clipped gradients over the clip.
    clip : float
        C, the bound on an example's gradient.
    plans : tuple[Plan, ...]
        Of the clients that can have the greatest epsilon; a plan's rounds are steps of the whole run.
    rounds : int
        Of the run, for which the plans are.
    """

    noise: float
    clip: float
    plans: tuple[Plan, ...]
    rounds: int

    def epsilon(self, rounds: int) -> float:
        """Return the greatest epsilon of a client that has trained in so many rounds."""
        steps = ((plan, plan.rounds // self.rounds * rounds) for plan in self.plans)
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
def terms_of(config: RunConfig, sizes: frozenset[int]) -> ExampleTerms:
    """Return the terms for clients with so many examples; with ``dp-epsilon`` the noise is found.

    Raises
    ------
    UserError
        When the package that accounts is missing.
    """
    check_installed("dp")
    assert config.clip
    plans, noise = plans_of(config, sizes), config.dp_noise
    if config.dp_epsilon:
        for plan in plans:
            if not noise or epsilon(noise, plan) > config.dp_epsilon:
                noise = noise_for(config.dp_epsilon, plan)
    return ExampleTerms(noise, config.clip, plans, config.rounds)


def plans_of(config: RunConfig, sizes: frozenset[int]) -> tuple[Plan, ...]:
    """Return the plans of clients, from the greatest sampling probability on.

    One that takes no more steps than another, with no greater probability, has no greater epsilon: left out.
    """
    plans: list[Plan] = []
    for size in sorted(sizes - {0}):
        batch = min(config.batch_size or size, size)
        one_is_left = batch > 1 and size > batch and size % batch == 1  # it makes no batch of its own
        steps = config.rounds * config.local_epochs * (-(-size // batch) - one_is_left)
        if not plans or steps > plans[-1].rounds:
            plans.append(Plan("poisson", batch / size, size, steps, config.dp_delta))
    return tuple(plans)


class ExamplePrivacy(RunPrivacy):
    """The privacy of one run, as its server states it.

    Parameters
    ----------
    config : RunConfig
        With ``dp`` example.
    terms : ExampleTerms
        The run's.
    """

    def __init__(self, config: RunConfig, terms: ExampleTerms) -> None:
        super().__init__(config)
        self.terms = terms

    def notices(self) -> Iterator[str]:
        """Yield warnings of what is allowed but hardly meant, one line each."""
        smallest = self.terms.plans[0].population
        if self.config.dp_delta > 1 / smallest:
            yield (
                f"dp-delta: {self.config.dp_delta:g} is above 1/{smallest}, for the client with {smallest} "
                "examples: to publish one of them whole would be within it"
            )
        if self.config.dp_seed != NO_SEED:
            yield PUBLIC_KEY

    def begin(self, folder: Path, done: int, repeats: bool) -> ClientMechanism | None:
        """Keep the ledger of a run in a folder; return None, since the server adds no noise.

        Parameters
        ----------
        folder : Path
            The run's, locked.
        done : int
            The round of the checkpoint from which the run goes on; 0 without one.
        repeats : bool
            Whether rounds that are run again would have the same bits with the same noise.

        Raises
        ------
        UserError
            When the ledger cannot be read, was begun with other noise, or the budget is spent.
        """
        config, terms = self.config, self.terms
        record = {"notion": NOTION, "noise": terms.noise, "rounds": config.rounds if config.dp_epsilon else 0}
        self._ledger = Ledger(folder / ledger.NAME, record)
        self._repeats = repeats and config.dp_seed != NO_SEED
        if (kept := self._ledger.terms) != record:
            wanted = f"{kept['rounds']}, for which the noise {kept['noise']:g} was found"
            raise not_allowed("rounds", config.rounds, wanted)
        if self._is_spent() and config.rounds > done and not self._is_repeated(done + 1):
            last = self._ledger.charges[-1].round
            wanted = f"{done}: the privacy budget is spent at round {last}"
            raise not_allowed("rounds", config.rounds, wanted)
        return None

    def begin_round(self, server_round: int) -> bool:
        """Charge a round before anybody is asked; return whether the budget is spent with it."""
        assert self._ledger
        before = len(self._ledger.of_round(server_round))
        if not (before and self._repeats):
            clip, spent = self.terms.clip, self.terms.epsilon(len(self._ledger.charges) + 1)
            self._ledger.charge(Charge(server_round, before + 1, clip, clip, spent, digest=""))
        return self._is_spent() and not self._is_repeated(server_round + 1)

    def _is_spent(self) -> bool:
        assert self._ledger
        return bool(self.config.dp_epsilon) and len(self._ledger.charges) >= self.terms.rounds

    def noise_std(self, charge: Charge) -> float:
        """Return the deviation of the noise on the sum of a batch."""
        return self.terms.noise * charge.clip

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` says of it."""
        config, terms, found = self.config, self.terms, self._ledger
        return {
            "notion": NOTION,
            "adjacency": "add-or-remove-one-example",
            "sampling": "poisson",
            "claim": GUARANTEE if config.dp_seed == NO_SEED else SIMULATED,
            "epsilon": found.epsilon if found else 0.0,
            "delta": config.dp_delta,
            "planned-epsilon": config.dp_epsilon or terms.epsilon(terms.rounds),
            "planned-rounds": terms.rounds,
            "published": len(found.charges) if found else 0,
            "noise": terms.noise,
            "accounted": [
                {"examples": plan.population, "probability": plan.probability, "steps": plan.rounds}
                for plan in terms.plans
            ],
            "outside": list(OUTSIDE),
        }

"""What the privacy of a run has in common, whatever it protects: its ledger, and the columns of a round."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..core.errors import not_allowed
from ..core.ground.columns import PRIVACY
from . import ledger
from .accounts import Release
from .client_mechanism import ClientMechanism
from .ledger import Charge, Ledger
from .private_run import NO_SEED, PrivateRun
from .site_metrics import evaluations_until, metrics_noise, planned
from .terms import FIRST_CLIP, GUARANTEE, SIMULATED

PUBLIC_KEY = "dp-seed: its key is public, so epsilon is simulated: nobody is protected by this run"
DROWNED = 0.1
"""Expected answers over noise and root of the parameters, below which noise is most of every step."""


def notices_of_delta(delta: float, clients: int) -> Iterator[str]:
    """Warn of a delta within which the data of one of these clients could be published whole."""
    if delta > 1 / clients:
        yield (
            f"dp-delta: {delta:g} is above 1/num-clients, {1 / clients:.2g}: to publish one client's data "
            "whole would be within it"
        )


def notices_of_noise(clients: str, noise: float, parameters: int, share: float) -> Iterator[str]:
    """Warn of noise that is most of every step: ``share`` is what ``clients``, in words, are of it."""
    if share < DROWNED:
        yield (
            f"dp: the noise drowns the updates: {clients} clients a round over noise {noise:g} times the "
            f"root of {parameters} parameters is {share:.2g}, below {DROWNED:g}; take more clients, a "
            "smaller model or more epsilon"
        )


class RunPrivacy(ABC):
    """Base of the notions; a run begins with ``begin``.

    Parameters
    ----------
    config : PrivateRun
        With ``dp``.
    """

    def __init__(self, config: PrivateRun) -> None:
        self.config = config
        self._ledger: Ledger | None = None
        self._repeats = False

    @abstractmethod
    def begin(self, folder: Path, done: int, repeats: bool) -> ClientMechanism | None:
        """Return what adds the noise, if the server does, and keep the run's ledger in a folder."""

    @abstractmethod
    def noise_std(self, charge: Charge) -> float:
        """Return the deviation of the noise in a round that was charged."""

    @abstractmethod
    def _spends(self, new: int) -> bool:
        """Return whether the budget is spent with so many more rounds than were charged."""

    def begin_round(self, server_round: int) -> bool:
        """Return whether the budget is spent with this round, which is about to begin."""
        new = 0 if self._is_repeated(server_round) else 1
        return self._spends(new) and not self._is_repeated(server_round + 1)

    @abstractmethod
    def notices(self) -> Iterator[str]:
        """Yield warnings of what is allowed but hardly meant, one line each."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` says of it."""

    @abstractmethod
    def ask(self, server_round: int, clients: Sequence[int]) -> None:
        """Hear which clients are about to be asked to train, by partition id."""

    def told(self) -> dict[str, float]:
        """Return what messages say of it."""
        return {}

    def end(self) -> None:  # noqa: B027
        """Forget what only a run that goes on needs: this one is complete."""

    def columns(self, server_round: int) -> dict[str, float]:
        """Return what ``metrics.csv`` has of a round that is done."""
        assert self._ledger
        charge = self._ledger.last_of(server_round)
        assert charge
        return dict(zip(PRIVACY, (charge.epsilon, self.noise_std(charge), charge.clip), strict=True))

    def _is_repeated(self, server_round: int) -> bool:
        assert self._ledger
        return self._repeats and self._ledger.last_of(server_round) is not None

    def _check_budget(self, done: int) -> None:
        """Refuse further rounds than those done, if the budget is spent."""
        assert self._ledger
        if self.config.rounds > done and self._spends(0) and not self._is_repeated(done + 1):
            last = self._ledger.charges[-1].round
            wanted = f"{done}: the privacy budget is spent at round {last}"
            raise not_allowed("rounds", self.config.rounds, wanted)


class PrivacyAtClients(RunPrivacy):
    """Base of the notions in which clients add the noise, and the server keeps the account alone.

    Parameters
    ----------
    config : PrivateRun
        With ``dp``.
    noise : float
        z, the deviation of the noise over the clip.

    Attributes
    ----------
    clip : float
        C; of the round to come, where it adapts.
    """

    notion: str
    """What is protected, in words."""
    adjacency: str
    """In what two neighbouring sets of data differ."""
    sampling: ClassVar[str]
    """What hides who or what was used."""
    lists_clients: ClassVar[bool] = False
    """Whether the ledger lists who was asked, since epsilon is each client's own."""

    def __init__(self, config: PrivateRun, noise: float) -> None:
        super().__init__(config)
        self.noise, self.clip = noise, config.clip or FIRST_CLIP
        self._rounds_of: Counter[int] = Counter()
        self._evaluations = 0

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
        config = self.config
        self._ledger = Ledger(folder / ledger.NAME, record := self.record())
        self._repeats = repeats and config.dp_seed != NO_SEED
        if (kept := self._ledger.terms) != record:
            wanted = f"{kept['rounds']}, for which the noise {kept['noise']:g} was found"
            raise not_allowed("rounds", config.rounds, wanted)
        for charge in self._ledger.charges:
            self._note(charge.clients)
            self._note_evaluations(charge.round)
        self._check_budget(done)
        return None

    def ask(self, server_round: int, clients: Sequence[int]) -> None:
        """Charge a round to the ledger before any client is asked."""
        assert self._ledger
        if self._is_repeated(server_round):
            return
        attempt = len(self._ledger.of_round(server_round)) + 1
        self._note(clients)
        self._note_evaluations(server_round)
        spent, listed = self._spent, tuple(clients if self.lists_clients else ())
        self._ledger.charge(Charge(server_round, attempt, self.clip, self.clip, spent, "", listed))

    def record(self) -> dict[str, Any]:
        """Return the terms for the first line of a ledger."""
        rounds = self.config.rounds if self.config.dp_epsilon else 0
        return {"notion": self.notion, "noise": self.noise, "rounds": rounds}

    def noise_std(self, charge: Charge) -> float:
        """Return the deviation of the noise that a client adds to each entry: z times its clip."""
        return self.noise * charge.clip

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` says of it."""
        config, found = self.config, self._ledger
        assert found
        return {
            "notion": self.notion,
            "adjacency": self.adjacency,
            "sampling": self.sampling,
            "claim": GUARANTEE if config.dp_seed == NO_SEED else SIMULATED,
            "epsilon": found.epsilon,
            "delta": config.dp_delta,
            "planned-epsilon": self._planned,
            "planned-rounds": config.rounds,
            "published": len(found.charges),
            "noise": self.noise,
        }

    @abstractmethod
    def epsilon(self, rounds: int, metrics: Release | None = None) -> float:
        """Return the greatest epsilon of a client that has trained in so many rounds, with its metrics."""

    @property
    def _planned(self) -> float:
        config = self.config
        if config.dp_metrics:
            return self.epsilon(config.rounds, Release(metrics_noise(config), count=planned(config)))
        return config.dp_epsilon or self.epsilon(config.rounds)

    @property
    def _spent(self) -> float:
        """Epsilon so far, with the metrics of the round that is about to begin."""
        if not self._evaluations:
            return self.epsilon(self._participations())
        metrics = Release(metrics_noise(self.config), count=self._evaluations)
        return self.epsilon(self._participations(), metrics)

    def _note_evaluations(self, server_round: int) -> None:
        """Count on how many splits each client is evaluated in a round, if metrics are paid for."""
        if self.config.dp_metrics:
            before = evaluations_until(self.config, server_round - 1)
            self._evaluations += evaluations_until(self.config, server_round) - before

    def _note(self, clients: Sequence[int]) -> None:
        """Count a charged round, as if each client trained in it where they are not listed."""
        self._rounds_of.update(clients if self.lists_clients else (0,))

    def _participations(self) -> int:
        """Return in how many rounds a client has trained at most."""
        return max(self._rounds_of.values(), default=0)

    def _spends(self, new: int) -> bool:
        return bool(self.config.dp_epsilon) and self._participations() + new >= self.config.rounds

"""Central, client-level differential privacy of one run: its terms, its mechanism, and what is said of it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, sqrt
from pathlib import Path
from typing import Any

from ..core.errors import RunFailed, UserError, not_allowed
from . import ledger
from .accounts import check_delta, check_installed, noise_for
from .client_mechanism import ClientMechanism
from .in_words import outside
from .keys import Key
from .ledger import Charge, Ledger
from .noise import STEPS
from .private_run import NO_SEED, PrivateRun, num_answers, num_groups
from .run_privacy import PUBLIC_KEY, RunPrivacy, notices_of_delta, notices_of_noise
from .terms import FIRST_CLIP, GUARANTEE, HYPOTHETICAL, SIMULATED, Terms

LAST = "checkpoint"
"""A run's folder of its last checkpoint, in which the key is."""
NOTION = "client, central"
SECURE = {"mechanism": "discrete Gaussian", "grid-steps": STEPS, "accountant": "Renyi divergences"}
"""What is said of secure noise: its deviation in steps of its grid, and by what epsilon is found."""
EXACT = 2.0**53
"""Whole numbers below are exact in float64, and so are their sums in any order."""
MOST_ROUNDING = 0.1
"""Of the clip, by which it may be shortened since updates are rounded to the grid of secure noise."""


def terms_of(config: PrivateRun) -> Terms:
    """Return the terms that a configuration asks for; with ``dp-epsilon`` the noise is found.

    Raises
    ------
    UserError
        When the package that accounts is missing, delta allows everything, or the noise leaves nothing for an
        adaptive clip.
    """
    check_installed("dp")
    sampling, share = config.dp_sampling, config.fraction_train
    answers = num_answers(sampling, share, config.num_training, config.clients_a_round)
    cohort = config.dp_simulate_cohort or answers
    population = config.dp_simulate_population or config.num_training
    groups = num_groups(sampling, share)
    claim = SIMULATED if config.dp_seed != NO_SEED else GUARANTEE
    terms = Terms(
        sampling=sampling,
        probability=min(1.0, answers / config.num_training),
        num_answers=answers,
        noise=config.dp_noise,
        clip=config.clip or FIRST_CLIP,
        adaptive=config.clip is None,
        delta=config.dp_delta,
        budget=config.dp_epsilon,
        rounds=config.rounds,
        cohort=cohort,
        population=population,
        claim=HYPOTHETICAL if config.dp_simulate_cohort else claim,
        groups=groups,
        bands=config.dp_bands or groups,
        secure=config.dp_secure_noise,
    )
    check_delta(terms.plan)
    if terms.budget:
        terms = replace(terms, noise=noise_for(terms.budget, terms.plan))
    if adaptive := terms.adaptive_clip:
        adaptive.check(terms.noise)
    return terms


class ClientPrivacy(RunPrivacy):
    """The privacy of one run.

    Parameters
    ----------
    config : PrivateRun
        With ``dp`` client.
    parameters : int
        How many numbers of the model travel and are trained.

    Raises
    ------
    UserError
        As `terms_of`.
    """

    def __init__(self, config: PrivateRun, parameters: int) -> None:
        super().__init__(config)
        self.parameters = parameters
        self._mechanism: ClientMechanism | None = None
        self._checkpoint: Path | None = None
        self.terms = terms_of(config)
        if self.terms.secure:
            self._check_grid()

    def _check_grid(self) -> None:
        """Refuse secure noise on whose grid a sum could be inexact, or that takes much of an update."""
        longest, clients = self.terms.longest, self.terms.clients
        if clients * longest >= EXACT:
            least = f"more than {self.terms.noise * clients * longest / EXACT:.2g}"
            wanted = f"{least} with dp-secure-noise: sums of {clients} clients would not be exact"
            raise not_allowed("dp-noise", self.terms.noise, wanted)
        if (share := sqrt(self.parameters) / 2 / longest) > MOST_ROUNDING:
            wanted = f"false: rounding {self.parameters} parameters would take {share:.2g} of dp-clip"
            raise not_allowed("dp-secure-noise", True, wanted)

    def notices(self) -> Iterator[str]:
        """Yield warnings of what is allowed but hardly meant, one line each."""
        terms, clients = self.terms, self.config.num_training
        yield from notices_of_delta(terms.delta, terms.population)
        share = terms.cohort / (terms.noise * sqrt(self.parameters))
        yield from notices_of_noise(f"{terms.cohort:g}", terms.noise, self.parameters, share)
        if terms.claim == SIMULATED:
            yield PUBLIC_KEY
        if terms.claim == HYPOTHETICAL:
            yield (
                f"dp-simulate-cohort: epsilon is hypothetical, that of {terms.cohort:g} clients a round of "
                f"{terms.population}; this run has {terms.num_answers:g} of {clients}"
            )

    def begin(self, folder: Path, done: int, repeats: bool) -> ClientMechanism:
        """Return the mechanism of a run that has done so many rounds, and keep its ledger in a folder.

        Parameters
        ----------
        folder : Path
            The run's, locked.
        done : int
            The round of the checkpoint from which the run goes on; 0 without one.
        repeats : bool
            Whether rounds that are run again have the same bits.

        Raises
        ------
        UserError
            When the ledger or the key cannot be read, the budget is spent, or groups cannot go on with their
            turns.
        """
        self._ledger = Ledger(folder / ledger.NAME, self.terms.as_record())
        self.terms = Terms.of(self._ledger.terms)
        key, known = self._key(folder / LAST)
        self._repeats = repeats and known
        self._check_budget(done)
        if self.terms.groups:
            self._check_turns(done, known)
        before = self._ledger.last_of(done) if done else None
        if done and before is None:
            raise UserError(f"resume: the ledger {str(self._ledger.path)!r} has no round {done}")
        clip = before.next_clip if before else self.terms.clip
        self._mechanism = ClientMechanism(key, self._ledger, self.terms, clip, self._repeats)
        self._checkpoint = folder / LAST
        return self._mechanism

    def end(self) -> None:
        if self._checkpoint:
            Key.destroy(self._checkpoint)

    def _check_turns(self, done: int, known: bool) -> None:
        """Refuse a turn that nobody has accounted, and noise that does not fit that of the rounds before."""
        assert self._ledger
        again = [charge.round for charge in self._ledger.charges if charge.round > done]
        if again and not self._repeats:
            raise UserError(
                f"resume: round {again[0]} is published, and cannot be repeated to the same bits; with "
                "dp-sampling 'cyclic' no other attempt is accounted, so begin a new run"
            )
        if not self.terms.correlated:
            return
        if done and not known:
            raise UserError("resume: the key is lost, and further noise correlates with what came of it")
        if self.config.rounds > self.terms.rounds:
            wanted = f"at most {self.terms.rounds}: noise is correlated over the rounds that were planned"
            raise not_allowed("rounds", self.config.rounds, wanted)

    def _key(self, checkpoint: Path) -> tuple[Key, bool]:
        """Return the run's key, and whether it is that of all rounds before."""
        if self.config.dp_seed != NO_SEED:
            return Key.of_seed(self.config.dp_seed), True
        if key := Key.load(checkpoint):
            return key, True
        key = Key()
        if self.config.checkpoint_every:
            key.save(checkpoint)
        return key, False

    def ask(self, server_round: int, clients: Sequence[int]) -> None:
        """Count the turns of those that are asked; the mechanism charges a round when it adds the noise.

        Raises
        ------
        RunFailed
            When a client would have more turns than are accounted.
        """
        if not self.terms.groups:
            return
        assert self._ledger
        assert self._mechanism
        others = [charge for charge in self._ledger.charges if charge.round != server_round]
        turns = Counter(client for charge in others for client in charge.clients)
        most = ceil(server_round / self.terms.groups)
        for client in clients:
            if turns[client] >= most:
                raise RunFailed(
                    f"privacy: client {client} has had {turns[client]} turns before round {server_round}, in "
                    f"which {most} are accounted for a client; begin a new run"
                )
        self._mechanism.asked = tuple(sorted(clients))

    def _spends(self, new: int) -> bool:
        assert self._ledger
        return bool(self.terms.budget) and len(self._ledger.charges) + new >= self.terms.rounds

    def noise_std(self, charge: Charge) -> float:
        """Return the deviation of the noise on each entry of the mean update."""
        correlated = self.terms.correlated
        factor = float(correlated.deviations[charge.round - 1]) if correlated else 1.0
        return factor * self.terms.noise_std(charge.clip)

    def summary(self) -> dict[str, Any]:
        """Return what ``summary.json`` says of it."""
        terms, found = self.terms, self._ledger
        assert found
        return {
            "notion": NOTION,
            "adjacency": terms.plan.adjacency,
            "sampling": terms.sampling,
            "claim": terms.claim,
            "epsilon": found.epsilon,
            "delta": terms.delta,
            "planned-epsilon": terms.budget or terms.epsilon(terms.rounds),
            "planned-rounds": terms.rounds,
            "published": len(found.charges),
            "noise": terms.noise,
            "probability": terms.probability,
            "clients-a-round": terms.num_answers,
            "accounted-clients-a-round": terms.cohort,
            "accounted-clients": terms.population,
            "adaptive-clip": terms.adaptive,
            **({"groups": terms.groups, "bands": terms.bands} if terms.groups else {}),
            **(SECURE if terms.secure else {}),
            "outside": outside(NOTION, "time" if terms.secure else "rounding"),
        }

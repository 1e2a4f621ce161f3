"""The Gaussian mechanism over clients.

McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models" (arXiv 1710.06963), alg. 1:
``D_t = (sum_i clip(Delta_i, C_t) + N(0, (z C_t)^2 I)) / n`` with ``n = q N``, over all clients that answer.
With groups that take turns the noise of rounds may be correlated: see `correlated`. Secure noise is discrete:
sum and noise are then whole numbers, in steps of a grid, and become floats only when both are added.
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.strategies import Vector

from .keys import Key
from .ledger import Charge, Ledger
from .noise import STEPS, discrete_gaussian, members
from .terms import AdaptiveClip, Terms


class ClientMechanism:
    """Samples clients, adds noise to their sum and charges the ledger: a `Mechanism` of ``strategies``.

    Parameters
    ----------
    key : Key
        Everything random derives from it.
    ledger : Ledger
        What is published is in it before anybody gets it.
    terms : Terms
        The run's.
    clip : float
        C of the first round to come.
    repeats : bool
        Whether a round that was published before is published again with the same bits. If not, it is another
        attempt, with another sample and other noise, and costs as much again.
    """

    def __init__(self, key: Key, ledger: Ledger, terms: Terms, clip: float, repeats: bool) -> None:
        self.bound = clip
        self.num_answers = terms.num_answers
        self._key = key
        self._ledger = ledger
        self._terms = terms
        self._repeats = repeats
        self._attempt = 1
        self.asked: tuple[int, ...] = ()
        """The partition ids of those that train in this round, where they take turns."""
        self._earlier: list[NDArray[np.floating]] = []
        self._earlier_to = 0

    @property
    def step(self) -> float:
        return self._terms.step(self.bound)

    def sample(self, server_round: int, partitions: NDArray[np.integer]) -> NDArray[np.bool_]:
        published = len(self._ledger.of_round(server_round))
        self._attempt = max(1, published) if self._repeats else published + 1
        if self._terms.sampling == "cyclic":
            return members(server_round, self._terms.groups, partitions)
        count = len(partitions)
        everybody = max(count, self._terms.clients)  # also those that are not connected can be drawn
        numbers = self._key.numbers(server_round, self._attempt, "sampling").uniform(everybody)
        if self._terms.sampling == "poisson":
            chosen = numbers < self._terms.probability
        elif self._terms.sampling == "fixed":
            chosen = np.zeros(everybody, bool)
            chosen[np.argsort(numbers, kind="stable")[: round(self._terms.num_answers)]] = True
        else:
            chosen = np.ones(everybody, bool)
        return chosen[:count]

    def publish(self, server_round: int, total: Vector, within: float) -> Vector:
        terms, clip = self._terms, self.bound
        deviation, mark = terms.noise_std(clip) * terms.num_answers, self._mark(server_round, total, within)
        if terms.secure:
            words = self._key.numbers(server_round, self._attempt, "noise", mark).words
            total = (total.astype(np.int64) + discrete_gaussian(words, total.size)) * self.step
        elif terms.correlated:
            total += deviation * self._correlated(server_round, total, mark)
        else:
            self._key.numbers(server_round, self._attempt, "noise", mark).add_noise(total, deviation)
        total /= terms.num_answers
        if adaptive := terms.adaptive_clip:
            self.bound = adaptive.next_clip(clip, self._share_within(server_round, within, adaptive, mark))
        self._ledger.charge(
            Charge(
                round=server_round,
                attempt=self._attempt,
                clip=clip,
                next_clip=self.bound,
                epsilon=terms.epsilon(len(self._ledger.charges) + 1),
                digest=hashlib.sha256(total.tobytes() + repr(self.bound).encode()).hexdigest(),
                clients=self.asked,
                mark=mark,
            )
        )
        return total

    def _mark(self, server_round: int, total: Vector, within: float) -> str:
        """Return the mark of a sum; empty also where it is published already by a version without marks."""
        known = [charge for charge in self._ledger.of_round(server_round) if charge.attempt == self._attempt]
        return self._key.mark_of(total, within) if all(charge.mark for charge in known) else ""

    def _share_within(self, server_round: int, within: float, adaptive: AdaptiveClip, mark: str) -> float:
        """Return the share of updates of length C at most, with noise.

        Secure noise is of 2^20 steps here too, over a sum to which each client adds a whole number of them.
        """
        numbers = self._key.numbers(server_round, self._attempt, "count", mark)
        answers = self._terms.num_answers
        deviation = adaptive.count_noise / self._terms.cohort
        if not self._terms.secure:
            return 0.5 + within / answers + deviation * float(numbers.normal(1)[0])
        half = math.floor(STEPS / (2 * deviation * answers))  # of one client
        noisy = round(2 * within) * half + int(discrete_gaussian(numbers.words, 1)[0])
        return 0.5 + noisy / (2 * half) / answers

    def _correlated(self, server_round: int, total: Vector, mark: str) -> Vector:
        """Return a round's correlated noise of unit scale, like the sum of that mark.

        After a resume the noise of all rounds before is drawn again, so no checkpoint holds any of it.
        """
        assert self._terms.correlated
        for t in range(self._earlier_to + 1, server_round + 1):
            noise = np.zeros_like(total)
            charge = self._ledger.last_of(t) if t < server_round else None
            self._key.numbers(t, 1, "noise", charge.mark if charge else mark).add_noise(noise, 1.0)
            noise, self._earlier = self._terms.correlated.correlate(t, noise, self._earlier)
        self._earlier_to = server_round
        return noise

"""`Sampling`: which nodes train and evaluate in a round; `Mechanism`: sampling and clipping for privacy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from flwr.app import MessageType, RecordDict
from numpy.typing import NDArray

from ..aggregation.vectors import Vector
from .nodes import (
    KnowsWhoIsFirst,
    KnowsWhoIsTested,
    NodeDirectory,
    NodeSelection,
    Participation,
    log_absentees,
    sample,
    sample_size,
)
from .validation import LOGGER

Choice = Callable[[Sequence[int], int], Sequence[int]]
"""Returns which of some clients may train, from their partitions and the round."""


class Mechanism(Protocol):
    """Decides which clients train, how far one client can move a round's sum, and what is published of it.

    A rule that has one (``rule.mechanism = ...``) gives every answer the weight 1 and scales its difference
    ``x_i - x`` to the L2 norm `bound` at most. A missing answer counts 0. The step is always taken, even
    without any answer, from the result of `publish`. Entries that are not stepped do not change.
    """

    @property
    def bound(self) -> float:
        """C, the largest L2 norm of a client's difference in the next round."""

    @property
    def step(self) -> float:
        """The grid that every clipped difference is rounded to in the next round; 0 for none.

        With one, `publish` is given their sum in multiples of it: integers below 2^53, and so exact in
        float64.
        """

    @property
    def num_answers(self) -> float:
        """The expected number of answers: a public constant, by which the sum is divided."""

    def sample(self, server_round: int, partitions: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which of the nodes, given by partition id and in this order, train in this round."""

    def publish(self, server_round: int, total: Vector, within: float) -> Vector:
        """Return the mean that the rule steps from.

        Parameters
        ----------
        server_round : int
            Number of the round.
        total : Vector
            The sum of the clipped differences; it may be changed.
        within : float
            ``sum_i (b_i - 1/2)``, where b_i is 1 if a difference was no longer than `bound`, and else 0.
        """


@dataclass(frozen=True)
class Sampling:
    """The sampling of one phase of a round among a directory's connected nodes.

    Parameters
    ----------
    nodes : NodeDirectory
        The nodes and their partitions.
    who : Participation
        Which of them take part.
    server_round : int
        The round.
    fraction : float
        Share of the nodes that are available.
    minimum : int
        The least number of them.
    seed : callable
        Returns the seed of the sample; called at most once.
    """

    nodes: NodeDirectory
    who: Participation
    server_round: int
    fraction: float
    minimum: int
    seed: Callable[[], tuple[int, ...]]

    def to_evaluate(self) -> list[int]:
        """Return the nodes that evaluate."""
        _, available = self.nodes.taking_part(self.who, self.server_round)
        if isinstance(self.who, KnowsWhoIsTested) and (none := self.who.untested):
            tested = [self.nodes.partition(node) not in none for node in available]
            available = available[np.array(tested, bool)]
        chosen = sample(available, sample_size(len(available), self.fraction, self.minimum), self.seed())
        self._log(MessageType.EVALUATE, len(chosen), len(available))
        return chosen

    def to_train(
        self, choice: Choice | None, selection: NodeSelection | None, content: RecordDict
    ) -> tuple[list[int], int]:
        """Return the nodes that train and will answer, and how many take part.

        Parameters
        ----------
        choice : callable, optional
            Which of the available clients may be asked; all by default.
        selection : NodeSelection, optional
            Which of those train; a uniform sample by default.
        content : RecordDict
            What they are sent.
        """
        taking_part, available = self.nodes.taking_part(self.who, self.server_round)
        there = self._chosen(list(available), choice)
        number = sample_size(len(there), self.fraction, self.minimum)
        asked, seed = number, self.seed()
        if isinstance(self.who, KnowsWhoIsFirst):
            asked = min(len(there), math.ceil(number * self.who.over_select - 1e-9))
        if selection:
            chosen = selection(self.server_round, there, asked, np.random.default_rng(seed), content)
        else:
            chosen = sample(there, asked, seed)
        self._log(MessageType.TRAIN, len(chosen), len(there))
        answering = self.nodes.answering(self.who, self.server_round, chosen, number)
        log_absentees(self.server_round, len(taking_part), len(there), len(chosen), len(answering))
        return answering, len(taking_part)

    def by_mechanism(self, mechanism: Mechanism, choice: Choice | None) -> tuple[list[int], int]:
        """Return the same with a mechanism, which draws from all that take part, available or not."""
        taking_part, available = self.nodes.taking_part(self.who, self.server_round)
        there = set(self._chosen(list(available), choice))
        partitions = np.array([self.nodes.partition(node) for node in taking_part])
        drawn = taking_part[mechanism.sample(self.server_round, partitions)]
        chosen = [node for node in drawn if node in there]
        self._log(MessageType.TRAIN, len(chosen), len(available))
        return self.nodes.answering(self.who, self.server_round, chosen, len(chosen)), len(taking_part)

    def _chosen(self, available: list[int], choice: Choice | None) -> list[int]:
        if not choice:
            return available
        allowed = set(choice([self.nodes.partition(node) for node in available], self.server_round))
        return [node for node in available if self.nodes.partition(node) in allowed]

    @staticmethod
    def _log(phase: str, sampled: int, available: int) -> None:
        LOGGER.info("configure_%s: Sampled %d nodes (out of %d)", phase, sampled, available)

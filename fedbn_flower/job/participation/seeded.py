"""System heterogeneity: which clients are there in a round, answer, and do all of their work.

Everything random derives from (seed, round, partition), so it is the same in every process.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...config.keys.availability import AVAILABILITY, HEADER, cycle_of
from ...core.errors import UserError
from .clock import Clock
from .rows import rows_of

# Streams of random numbers, one for each purpose; clients use smaller numbers.
STRAGGLES, DROPS_OUT, BEGINS, IS_NEW = 11, 12, 13, 14

Partitions = NDArray[np.int64]
Answers = NDArray[np.bool_]


class Availability(Protocol):
    """In which rounds clients are there."""

    def __call__(self, server_round: int, partition: int) -> bool:
        """Return whether the client of a partition is there in a round."""

    def of_all(self, server_round: int, partitions: Partitions) -> Answers:
        """Return the same of many."""


def _generator(seed: int, server_round: int, partition: int, what: int) -> np.random.Generator:
    return np.random.default_rng([seed, server_round, partition, what])


def share_of_work(seed: int, stragglers: float, partition: int, server_round: int) -> float:
    """Return the share of its local work that a client does in a round.

    With probability ``stragglers`` it is u ~ U(0, 1) (Li et al. 2020, "Federated Optimization in
    Heterogeneous Networks", section 5.2, in epochs there), otherwise 1. Who straggles at one probability
    does so at every greater one, to the same share.
    """
    if not stragglers:
        return 1.0
    when, share = _generator(seed, server_round, partition, STRAGGLES).random(2)
    return float(share) if when < stragglers else 1.0


def held_out_clients(seed: int, num_clients: int, count: int, left_out: int = -1) -> frozenset[int]:
    """Draw the partitions of ``count`` clients that take no part in the rounds, or return the one named."""
    if left_out >= 0:
        return frozenset({left_out})
    drawn = _generator(seed, 0, 0, IS_NEW).choice(num_clients, size=count, replace=False)
    return frozenset(map(int, drawn))


@dataclass(frozen=True)
class SeededParticipation:
    """Who takes part in a round, as `strategies.Participation` says it.

    Parameters
    ----------
    seed : int
        The run's.
    dropout : float
        Probability that a client's reply never arrives.
    dropped : float
        Probability that it straggles, where stragglers' updates are dropped; otherwise 0.
    is_there : Availability
        In which rounds a client is there.
    trains : int, optional
        The one client that trains, where only one does.
    held_out_clients : frozenset[int]
        Partitions that take no part; see `held_out_clients`.
    over_select : float
        How many times as many clients are asked to train as answers count.
    clock : Clock, optional
        Decides whose answers are in time.
    untested : frozenset[int]
        Partitions that evaluate nothing.
    """

    seed: int
    dropout: float
    dropped: float
    is_there: Availability
    trains: int | None = None
    held_out_clients: frozenset[int] = frozenset()
    over_select: float = 1.0
    clock: Clock | None = None
    untested: frozenset[int] = frozenset()

    def takes_part(self, partition: int) -> bool:
        return partition not in self.held_out_clients

    def available(self, server_round: int, partition: int) -> bool:
        return self.is_there(server_round, partition)

    def all_taking_part(self, partitions: Partitions) -> Answers:
        return ~np.isin(partitions, list(self.held_out_clients))

    def all_available(self, server_round: int, partitions: Partitions) -> Answers:
        return self.is_there.of_all(server_round, partitions)

    def answers(self, server_round: int, partition: int) -> bool:
        if self.trains not in (None, partition):
            return False
        if share_of_work(self.seed, self.dropped, partition, server_round) < 1:
            return False
        if not self.dropout:
            return True
        return _generator(self.seed, server_round, partition, DROPS_OUT).random() >= self.dropout

    def first_answers(self, server_round: int, partitions: NDArray[np.integer], wanted: int) -> Answers:
        answers = np.array([self.answers(server_round, partition) for partition in partitions.tolist()], bool)
        return self.clock.first(server_round, partitions, answers, wanted) if self.clock else answers


def availability(text: str, seed: int, num_clients: int) -> Availability:
    """Parse ``availability`` for the rounds 1, 2, ...

    - ``always``.
    - ``cycle:PERIOD,ON``: client i is there if (round - 1 + offset_i) mod PERIOD < ON; its offset is drawn
      from 0, ..., PERIOD - 1.
    - A file: a row is a client and the rounds, both included, in which it is there; a client may have
      several, and one that has none is always there.

    Raises
    ------
    UserError
        When it is none of them, or the file has an impossible row.
    """
    if text == "always":
        return _Listed({})
    if cycle := cycle_of(text):
        return _Cycle(seed, *cycle)
    return _Listed(_rounds_by_partition(text, num_clients))


class _Cycle:
    def __init__(self, seed: int, period: int, on: int) -> None:
        self.seed = seed
        self.period = period
        self.on = on
        self.offsets: dict[int, int] = {}

    def __call__(self, server_round: int, partition: int) -> bool:
        if partition not in self.offsets:
            drawn = _generator(self.seed, 0, partition, BEGINS).integers(self.period)
            self.offsets[partition] = int(drawn)
        return (server_round - 1 + self.offsets[partition]) % self.period < self.on

    def of_all(self, server_round: int, partitions: Partitions) -> Answers:
        return np.array([self(server_round, partition) for partition in partitions.tolist()], bool)


@dataclass(frozen=True)
class _Listed:
    """Those that have no rounds listed are always there."""

    rounds: dict[int, list[range]]

    def __call__(self, server_round: int, partition: int) -> bool:
        if partition not in self.rounds:
            return True
        return any(server_round in some for some in self.rounds[partition])

    def of_all(self, server_round: int, partitions: Partitions) -> Answers:
        absent = [partition for partition in self.rounds if not self(server_round, partition)]
        return ~np.isin(partitions, absent)


def _rounds_by_partition(name: str, num_clients: int) -> dict[int, list[range]]:
    """A file's rows by partition."""
    rounds: dict[int, list[range]] = {}
    for line, row in rows_of("availability", name, AVAILABILITY, HEADER):
        try:
            partition, first, last = map(int, row)
        except ValueError:
            partition, first, last = -1, 0, 0
        if not (0 <= partition < num_clients and 1 <= first <= last):
            expected = f"a partition-id below num-clients, {num_clients}, and rounds with 1 <= from <= to"
            found = f"{','.join(row)!r} in line {line} of {name!r}"
            raise UserError(f"availability: {found} is not allowed; expected {expected}")
        rounds.setdefault(partition, []).append(range(first, last + 1))
    return rounds

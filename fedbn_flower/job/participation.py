"""System heterogeneity: who takes part in a round, and how long that takes."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..config.keys.general import AVAILABILITY, AVAILABILITY_HEADER, cycle_of
from ..core.errors import UserError, not_allowed
from ..core.files import path_of
from ..extensions.devices import DEVICES, HEADER, sigma_of


def rows_of(key: str, name: str, allowed: str, header: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Return the rows of the CSV file that a key names, each with its line number.

    Raises
    ------
    UserError
        When it cannot be read, or has another header.
    """
    try:
        with path_of(name).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            found = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, RuntimeError, UnicodeDecodeError, csv.Error) as error:
        raise not_allowed(key, name, f"{allowed} ({error})") from error
    if found != list(header):
        raise not_allowed(key, name, f"a CSV file with header {','.join(header)}")
    return rows


IS_DEVICE = 15
"""The random stream of devices; see `seeded`."""
PLAIN = (0.01, 1e6, 1e6)
"""Seconds per example, bytes per second down and up, of the default device."""
PHONE = (0.01, 0.75e6, 0.25e6)
"""The same, the median of phones. Rates: Wang et al. 2021, "A Field Guide to Federated Optimization", section
4.3. The seconds, and the spread of 1 in the logarithm, are assumptions."""

Rates = NDArray[np.float64]


def rates_of(text: str, seed: int, num_clients: int) -> Rates:
    """Parse ``devices``; return seconds per example, bytes per second down and up, float64 (num_clients, 3).

    - ``uniform``: `PLAIN` for every client.
    - ``lognormal:SIGMA``: `PLAIN`, each number times exp(SIGMA z) with a z ~ N(0, 1) of its own.
    - ``phones``: as lognormal, from `PHONE` with SIGMA = 1.
    - A file: a row for every client.

    Raises
    ------
    UserError
        When it is none of them, or the file has an invalid row, or not one for each client.
    """
    sigma = sigma_of(text)
    if text not in ("uniform", "phones") and sigma is None:
        return _listed(text, num_clients)
    z = np.random.default_rng([seed, 0, 0, IS_DEVICE]).standard_normal((num_clients, len(PLAIN)))
    if text == "phones":
        return np.array(PHONE) * np.exp(z)
    return np.array(PLAIN) * np.exp((sigma or 0.0) * z)


def _listed(name: str, num_clients: int) -> Rates:
    rates = np.full((num_clients, len(PLAIN)), np.nan)
    for line, row in rows_of("devices", name, DEVICES, HEADER):
        try:
            partition, values = int(row[0]), [float(cell) for cell in row[1:]]
        except ValueError:
            partition, values = -1, []
        fits = len(values) == len(PLAIN) and all(map(isfinite, values)) and values[0] >= 0 < min(values[1:])
        if not (fits and 0 <= partition < num_clients and np.isnan(rates[partition, 0])):
            expected = f"a partition-id below num-clients, {num_clients}, once, seconds >= 0 and rates > 0"
            found = f"{','.join(row)!r} in line {line} of {name!r}"
            raise UserError(f"devices: {found} is not allowed; expected {expected}")
        rates[partition] = values
    if len(missing := np.flatnonzero(np.isnan(rates[:, 0]))):
        raise not_allowed("devices", name, f"a row for every client ({missing[0]} has none)")
    return rates


@dataclass
class Clock:
    """The simulated time of a round.

    A client with n examples that does a share u of E epochs takes ``B / down + u E n s + A / up`` seconds,
    where it receives B bytes, answers with A bytes, and needs s seconds per example.

    Parameters
    ----------
    rates : NDArray[np.float64]
        As `rates_of` returns them.
    examples : NDArray[np.int64]
        Each client's number of training examples, (num_clients,).
    epochs : int
        ``local-epochs``.
    work : callable, optional
        Maps partition and round to the share of its work that a client does; by default all.
    bytes_in : callable
        Returns the bytes that each client receives in a round, and those that it sends.
    deadline : float
        Seconds after which an answer does not count.
    """

    rates: Rates
    examples: NDArray[np.int64]
    epochs: int
    work: Callable[[int, int], float] | None
    bytes_in: Callable[[int], tuple[int, int]]
    deadline: float = inf

    round_seconds: float = 0.0
    """Seconds that the round last passed to `first` waited for answers."""

    def seconds(self, server_round: int, partitions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how long each client takes to answer in a round, float64 of the same shape."""
        per_example, down, up = self.rates[partitions].T
        share = np.ones(len(partitions))
        if self.work:
            share[:] = [self.work(partition, server_round) for partition in partitions.tolist()]
        gets, sends = self.bytes_in(server_round)
        compute = share * self.epochs * self.examples[partitions] * per_example
        return np.asarray(gets / down + compute + sends / up, np.float64)

    def first(
        self, server_round: int, partitions: NDArray[np.integer], answers: NDArray[np.bool_], wanted: int
    ) -> NDArray[np.bool_]:
        """Return whose answers count: the first ``wanted`` before the deadline; ties are broken by partition.

        Bonawitz et al. 2019, "Towards Federated Learning at Scale", section 2.2. The round lasts until the
        last of these, or until the deadline if they are too few. Without a deadline, lost clients are assumed
        to be known at once.

        Parameters
        ----------
        server_round : int
            The round.
        partitions : NDArray[np.integer]
            The clients asked. Unknown partitions are given as node ids: they have no device, and do not
            count.
        answers : NDArray[np.bool_]
            Which of their answers are not lost.
        wanted : int
            The number of answers that ends the round, at most the number of clients asked.
        """
        known = partitions < len(self.rates)
        seconds = np.full(len(partitions), inf)
        seconds[known] = self.seconds(server_round, partitions[known].astype(np.int64))
        answers = answers & known
        order = np.lexsort((partitions, seconds))
        counted = np.zeros(len(partitions), bool)
        counted[order[answers[order] & (seconds[order] <= self.deadline)][:wanted]] = True
        if counted.sum() < wanted and isfinite(self.deadline):
            self.round_seconds = self.deadline
        else:
            self.round_seconds = float(seconds[counted].max(initial=0.0))
        return counted


# Streams of random numbers, one for each purpose; clients use smaller numbers.
STRAGGLES, DROPS_OUT, BEGINS, IS_NEW = 11, 12, 13, 14

Partitions = NDArray[np.int64]
Answers = NDArray[np.bool_]


class Availability(Protocol):
    """In which rounds clients are available."""

    def __call__(self, server_round: int, partition: int) -> bool:
        """Return whether the client of a partition is available in a round."""

    def of_all(self, server_round: int, partitions: Partitions) -> Answers:
        """Return the same for several partitions."""


def _generator(seed: int, server_round: int, partition: int, what: int) -> np.random.Generator:
    return np.random.default_rng([seed, server_round, partition, what])


def share_of_work(seed: int, stragglers: float, partition: int, server_round: int) -> float:
    """Return the share of its local work that a client does in a round.

    With probability ``stragglers`` it is u ~ U(0, 1) (Li et al. 2020, "Federated Optimization in
    Heterogeneous Networks", section 5.2, in epochs there), otherwise 1. A client that straggles at one
    probability does so at every greater one, with the same share.
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
        In which rounds a client is available.
    trains : int, optional
        The client that trains, if only one does.
    held_out_clients : frozenset[int]
        Partitions that take no part; see `held_out_clients`.
    over_select : float
        Ratio of the clients asked to train to the answers that count.
    clock : Clock, optional
        Decides which answers are in time.
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
    - ``cycle:PERIOD,ON``: client i is available if (round - 1 + offset_i) mod PERIOD < ON; its offset is
      drawn from 0, ..., PERIOD - 1.
    - A file: a row has a client and the first and last round of an interval in which it is available; a
      client may have several rows, and one without a row is always available.

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
    """Availability from a file; clients without listed rounds are always available."""

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
    for line, row in rows_of("availability", name, AVAILABILITY, AVAILABILITY_HEADER):
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

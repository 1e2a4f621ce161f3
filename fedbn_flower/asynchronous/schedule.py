"""Asynchronous protocols: what a round of one is, and its schedule on the simulated clock.

How long a client trains does not depend on what it learns. So the simulated clock alone says who answers when
and from which version, before anything is computed. Everything random derives from (seed, dispatch).
"""

from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType
from numpy.typing import NDArray

from fedbn_flower.strategies.aggregation.buffers import AsynchronousProtocol, Buffer, BufferedAnswer

from ..extensions.base import Configure, Moment

IS_DISPATCHED = 16
"""The stream of random numbers of dispatches; see `seeded`."""


@dataclass(frozen=True)
class FullBuffer:
    """The answers that make an update, in the order of version and partition.

    Parameters
    ----------
    answers : Sequence[BufferedAnswer]
        Whose, and from which version.
    seconds : float
        When the last of them lands, on the simulated clock.
    outstanding : frozenset[int]
        The versions that other clients still train then.
    """

    answers: Sequence[BufferedAnswer]
    seconds: float
    outstanding: frozenset[int]


class Schedule:
    """An event queue: who trains when, from which version of the model.

    At first ``concurrency`` clients get version 0. Whenever an answer lands, a client takes its place and
    gets the version that there is then: any of those that do not train, with equal probability. A client
    answers at most once in a buffer, so it waits for the next version if it has answered. Its place stays
    empty until then if everybody else trains. Of answers that land at the same moment the lower partition
    comes first, and all of them before new clients begin.

    Parameters
    ----------
    seed : int
        The run's.
    seconds : NDArray[np.float64]
        How long each client takes to answer, by partition.
    clients : Sequence[int]
        The partitions that train.
    concurrency : int
        M, how many train at once.
    size : int
        K, the answers of a buffer, at most as many as there are clients.
    """

    def __init__(
        self, seed: int, seconds: NDArray[np.float64], clients: Sequence[int], concurrency: int, size: int
    ) -> None:
        self.seed = seed
        self.seconds = seconds
        self.concurrency = concurrency
        self.size = size
        self._idle = sorted(clients)
        self._training: list[tuple[float, int, int]] = []  # when it lands, partition, version
        self._answers: list[BufferedAnswer] = []
        self._dispatches = 0
        self._full: list[FullBuffer] = []
        self._dispatch(0.0)

    def buffer(self, number: int) -> FullBuffer:
        """Return the buffer that makes this update, 1, 2, ..."""
        while len(self._full) < number:
            self._advance()
        return self._full[number - 1]

    def _advance(self) -> None:
        """Go to the next moment at which answers land."""
        now = self._training[0][0]
        while self._training and self._training[0][0] == now:
            _, partition, version = heappop(self._training)
            self._answers.append(BufferedAnswer(version, partition))
            if len(self._answers) == self.size:
                outstanding = frozenset(version for _, _, version in self._training)
                self._full.append(FullBuffer(sorted(self._answers), now, outstanding))
                for answer in self._answers:
                    insort(self._idle, answer.partition)
                self._answers = []
        self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        """Have clients that are idle begin, as long as there are places."""
        while self._idle and len(self._training) < self.concurrency:
            rng = np.random.default_rng([self.seed, self._dispatches, 0, IS_DISPATCHED])
            partition = self._idle.pop(int(rng.integers(len(self._idle))))
            self._dispatches += 1
            lands = now + float(self.seconds[partition])
            heappush(self._training, (lands, partition, len(self._full)))


class Buffers(ABC):
    """The rounds of an asynchronous protocol: each is a buffer.

    Parameters
    ----------
    protocol : AsynchronousProtocol
        How answers count.

    Attributes
    ----------
    versions : dict[int, ArrayRecord]
        Older versions of the model that a resumed run needs: those that clients still train after the last
        round, at most as many as train at once.
    ends : callable, optional
        Tells when a round ends, on the simulated clock; None on the real one.
    """

    def __init__(self, protocol: AsynchronousProtocol) -> None:
        self.protocol = protocol
        self.versions: dict[int, ArrayRecord] = {}
        self.ends: Callable[[int], float] | None = None

    @abstractmethod
    def answers(self, moment: Moment, model: ArrayRecord, configure: Configure) -> Iterable[Message]:
        """Give the rule the buffer of a round; return the answers to its messages.

        Parameters
        ----------
        moment : Moment
            The round.
        model : ArrayRecord
            The server's model before it.
        configure : callable
            Calls the rule's ``configure_train`` and returns its messages, to the clients of its buffer if it
            has one.
        """


class ScheduledBuffers(Buffers):
    """Buffers on the simulated clock.

    Parameters
    ----------
    protocol : AsynchronousProtocol
        How answers count.
    schedule : Schedule
        Whose answers, and when.
    """

    def __init__(self, protocol: AsynchronousProtocol, schedule: Schedule) -> None:
        super().__init__(protocol)
        self.schedule = schedule
        self.ends = lambda server_round: schedule.buffer(server_round).seconds

    def answers(self, moment: Moment, model: ArrayRecord, configure: Configure) -> Iterable[Message]:
        moment.rule._buffer_ = self.begin_round(moment.number, model)
        return moment.exchange.answers(MessageType.TRAIN, configure())

    def begin_round(self, server_round: int, arrays: ArrayRecord) -> Buffer:
        """Return the buffer of a round, before which the server's model is ``arrays``."""
        full, current = self.schedule.buffer(server_round), server_round - 1
        models = {**self.versions, current: arrays}
        self.versions = {version: models[version] for version in sorted(full.outstanding)}
        needed = {  # in the order of the names of the model, which a checkpoint does not keep
            version: ArrayRecord({name: models[version][name] for name in arrays})
            for version in sorted({answer.version for answer in full.answers})
        }
        return Buffer(self.protocol, current, full.answers, needed)

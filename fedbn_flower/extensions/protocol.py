"""``protocol``: rounds that are buffers of answers of clients that train all the time."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from flwr.app import ArrayRecord, Message

from ..records.columns import STALENESS, STALENESS_OF_ROUND
from ..records.events import RoundResult, RunInfo
from .base import Extension, Moment


class Buffers(Protocol):
    """Who answers in which round; see `federation.participation.asynchronous.Buffers`."""

    def answers(
        self, moment: Moment, model: ArrayRecord, configure: Callable[[], Iterable[Message]]
    ) -> Iterable[Message]:
        """Give the rule the buffer of a round; return the answers to its messages."""


class Asynchronous(Extension):
    """Has an update made of the answers of a buffer, in runs with an asynchronous protocol.

    Parameters
    ----------
    run : RunInfo
        The run.
    buffers : Buffers, optional
        Its buffers; None in a run whose rounds are synchronous.
    """

    def __init__(self, run: RunInfo, buffers: Buffers | None) -> None:
        super().__init__(run)
        self.buffers = buffers
        self.staleness: Mapping[int, int] = {}
        """How many updates old the model of each answer was, by partition."""
        self.used: list[int] = []

    def answers(
        self, moment: Moment, model: ArrayRecord, configure: Callable[[], Iterable[Message]]
    ) -> Iterable[Message] | None:
        return self.buffers.answers(moment, model, configure) if self.buffers else None

    def published(
        self, model: ArrayRecord, before: ArrayRecord, sent: ArrayRecord, moment: Moment
    ) -> ArrayRecord:
        buffer = moment.rule._buffer_
        self.staleness = buffer.staleness if buffer else {}
        return model

    def after_round(self, result: RoundResult) -> None:
        self.used = [self.staleness[p] for p in result.train.metrics if p in self.staleness]

    def columns(self) -> Mapping[str, float]:
        """Return the mean and the greatest staleness of the answers that were used."""
        if not (used := self.used):
            return {}
        return dict(zip(STALENESS_OF_ROUND, (sum(used) / len(used), max(used)), strict=True))

    def columns_of_clients(self) -> Mapping[int, Mapping[str, float]]:
        return {partition: {STALENESS: old} for partition, old in self.staleness.items()}

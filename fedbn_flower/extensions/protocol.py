"""``protocol``: asynchronous ones, which update the model after any K answers."""

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any

from flwr.app import ArrayRecord, Message
from pydantic import Field as setting

from fedbn_flower.strategies.aggregation.buffers import (
    FORM,
    SYNC,
    AsynchronousProtocol,
    FedAsync,
    protocol_of,
)
from fedbn_flower.strategies.post_processing import goes_with_buffers

from ..core.errors import not_allowed
from ..core.ground.columns import STALENESS, STALENESS_OF_ROUND
from ..core.key_group import KeyGroup
from ..names import STRATEGY
from ..records.events import RoundResult, RunInfo
from .base import Conflict, Extension, Moment
from .holdout import num_training

ALPHA = 0.6
NEUTRAL: Mapping[str, tuple[object, str]] = {
    "fraction-train": (1.0, "1.0 (concurrency says how many train)"),
    "selection": ("uniform", "'uniform'"),
    "round-deadline": (0.0, "0, since no answer is too late,"),
    "over-select": (1.0, "1, since no answer is too late,"),
    "stragglers": (0.0, "0.0, since who is slow answers later,"),
    "dropout": (0.0, "0.0, since every client that is asked answers,"),
    "availability": ("always", "'always'"),
    "compress-down": ("none", "'none', since clients train older models,"),
    "unfreeze-at": (0, "0, since clients train older models,"),
}
"""Keys that have to be at their defaults with a protocol other than ``sync``, and why."""


class ProtocolKeys(KeyGroup):
    """Asynchronous protocols"""

    of_references = False
    after = "over-select"

    protocol: Annotated[str, FORM] = setting(
        SYNC,
        description="when the model is updated: after the clients of a round, after any K answers of "
        "clients that train all the time, or after each answer",
    )
    concurrency: int = setting(
        0, ge=0, description="how many clients train at once, with a protocol other than sync"
    )
    mixing: float = setting(
        ALPHA, gt=0, le=1, description="alpha of fedasync: the weight of a fresh answer against the model"
    )

    @property
    def asynchronous(self) -> AsynchronousProtocol | None:
        """The protocol; None if it is ``sync``.

        Raises
        ------
        UserError
            When there is none of this name, or its arguments are not allowed.
        """
        return _protocol(self.protocol, self.mixing)


def asynchronous(config: Mapping[str, Any]) -> AsynchronousProtocol | None:
    """Return `ProtocolKeys.asynchronous` of a configuration by key."""
    return _protocol(config["protocol"], config["mixing"])


def _protocol(text: str, mixing: float) -> AsynchronousProtocol | None:
    try:
        return protocol_of(text, mixing)
    except ValueError:
        raise not_allowed("protocol", text, FORM) from None


class Buffers(typing.Protocol):
    """Who answers in which round; see `server.asynchronous.Buffers`."""

    def answers(
        self, moment: Moment, model: ArrayRecord, configure: Callable[[], Iterable[Message]]
    ) -> Iterable[Message]:
        """Give the rule the buffer of a round; return the answers to its messages."""


class Protocol(Extension):
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

    @classmethod
    def apart(cls, config: Any) -> str:
        return f"with protocol {config.protocol!r} clients train older models" if config.asynchronous else ""

    @classmethod
    def conflicts(cls, config: Mapping[str, Any]) -> Iterator[Conflict]:
        protocol, name = asynchronous(config), config["protocol"]
        if config["mixing"] != ALPHA and not isinstance(protocol, FedAsync):
            yield Conflict("mixing", config["mixing"], f"{ALPHA}, its default, with protocol {name!r}")
        if protocol is None:
            if config["concurrency"]:
                yield Conflict("concurrency", config["concurrency"], f"0 with protocol {SYNC!r}")
            return
        if protocol.size > (most := num_training(config)):
            yield Conflict("protocol", name, f"a buffer of at most {most}: a client answers once in it")
        for key, wanted in _unfit(config):
            yield Conflict(key, config[key], f"{wanted} with protocol {name!r}")

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


def _unfit(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each key whose value does not go with an asynchronous protocol, with what is allowed."""
    most = num_training(config)
    if config["dp"] != "none":
        yield "dp", "'none', since an answer's weight depends on its staleness,"
    if config["devices"] == "none" and config["eval-model"] == "local":
        yield (
            "eval-model",
            "'aggregated' without devices, since no client knows in which round its answer lands,",
        )
    if not 1 <= config["concurrency"] <= most:
        yield "concurrency", f"from 1 to {most}, the clients that train,"
    for key, (neutral, wanted) in NEUTRAL.items():
        if config[key] != neutral:
            yield key, wanted
    if not goes_with_buffers(STRATEGY.find(config["strategy"])):
        yield "strategy", "a rule that uses nothing but the mean of answers, scaled as they are,"

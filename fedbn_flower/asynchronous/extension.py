"""``protocol``: asynchronous ones, which update the model after any K answers."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord

from fedbn_flower.strategies.aggregation.buffers import SYNC, FedAsync
from fedbn_flower.strategies.guarantees import goes_with_buffers

from ..core.errors import Conflict
from ..core.ground.columns import STALENESS, STALENESS_OF_ROUND
from ..extensions.annex_keys import ALPHA, asynchronous
from ..extensions.base import Moment, ServerHook
from ..extensions.declared import About
from ..extensions.holdout import num_training
from ..job.inputs import RunInputs
from ..job.participation import Clock
from ..names import STRATEGY
from ..records.events import RoundResult, RunInfo
from .arrivals import ArrivingBuffers
from .schedule import Buffers, Schedule, ScheduledBuffers

if TYPE_CHECKING:
    from ..server.federation import Federation

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


class Protocol(ServerHook):
    """Has an update made of the answers of a buffer.

    Parameters
    ----------
    run : RunInfo
        The run.
    buffers : Buffers
        Its buffers.
    """

    place = 100
    reserves = STALENESS_OF_ROUND

    def __init__(self, run: RunInfo, buffers: Buffers) -> None:
        super().__init__(run)
        self.buffers = buffers
        self.staleness: Mapping[int, int] = {}
        """How many updates old the model of each answer was, by partition."""
        self.used: list[int] = []

    @classmethod
    def made_of(cls, federation: "Federation") -> Mapping[str, Any]:
        return {"buffers": federation.buffers}

    @classmethod
    def about(cls, config: Mapping[str, Any]) -> About:
        return About(apart=f"with protocol {config['protocol']!r} clients train older models")

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

    def prepare(self, moment: Moment) -> None:
        moment.exchange.train = partial(self.buffers.answers, moment)

    def published(
        self, model: ArrayRecord, before: ArrayRecord, sent: ArrayRecord, moment: Moment
    ) -> ArrayRecord:
        buffer = moment.rule._buffer_
        self.staleness = buffer.staleness if buffer else {}
        return model

    def after_round(self, result: RoundResult) -> None:
        self.used = [self.staleness[p] for p in result.train.metrics if p in self.staleness]

    def columns(self) -> Mapping[str, float | Mapping[int, float]]:
        """Return the mean and the greatest staleness of the answers that were used, and that of each."""
        if not (used := self.used):
            return {}
        of_round = zip(STALENESS_OF_ROUND, (sum(used) / len(used), max(used)), strict=True)
        return {**dict(of_round), STALENESS: self.staleness}


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


def buffers_of(inputs: RunInputs, clock: Clock | None) -> Buffers:
    """Return the rounds of a run's asynchronous protocol, on its clock or the real one."""
    config, protocol = inputs.config, inputs.config.asynchronous
    assert protocol
    if not clock:
        return ArrivingBuffers(protocol, config.seed, config.concurrency)
    everybody = np.arange(config.num_clients)
    clients = sorted(set(everybody.tolist()) - inputs.held_out_clients)
    schedule = Schedule(config.seed, clock.seconds(1, everybody), clients, config.concurrency, protocol.size)
    return ScheduledBuffers(protocol, schedule)

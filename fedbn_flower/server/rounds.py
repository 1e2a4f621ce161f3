"""The state of a round between its steps, the history of complete rounds, and a run's totals."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, MessageType

from fedbn_flower.strategies import PhaseReport, RuleState

from ..config.run_config import RunConfig
from ..extensions import Moment
from ..extensions.base import Exchange
from ..records.checkpoint import FLOWER, RunTotals
from ..records.events import RoundResult
from .one_exchange import JointEvaluation
from .refusals import Divergence, Refusals
from .site_memories import FoundMemory


@dataclass
class CollectedRound:
    """A round whose clients have trained, before the server's rule steps.

    Parameters
    ----------
    moment : Moment
        The round.
    before, sent : ArrayRecord
        The server's model at the beginning of the round, and the version sent to clients.
    answers : Any
        What `PseudoGradientStrategy.collect_train` returned; for a rule that overrides `aggregate_train`, the
        unread answers themselves.
    train : PhaseReport, optional
        The answers by client; None while they are unread.
    memories : list[FoundMemory]
        What sites reported about their memories.
    seconds : float
        Its duration so far.
    """

    moment: Moment
    before: ArrayRecord
    sent: ArrayRecord
    answers: Any
    train: PhaseReport | None
    memories: list[FoundMemory]
    seconds: float


@dataclass
class TrainedRound:
    """A round whose model is made, and is still to be evaluated.

    Parameters
    ----------
    moment : Moment
        The round.
    before, model, counted, sent : ArrayRecord
        The server's model when it began, the next one, the one that counts, and that as clients get it.
    train : PhaseReport
        What clients answered to the train messages.
    metrics : Mapping, optional
        The strategy's mean of their metrics.
    seconds : float
        What it has taken.
    joint : JointEvaluation, optional
        Its evaluation, if that goes with the next round's training.
    state : RuleState, optional
        That of the server's rule after it, if the next round trains before this one is finished.
    """

    moment: Moment
    before: ArrayRecord
    model: ArrayRecord
    counted: ArrayRecord
    sent: ArrayRecord
    train: PhaseReport
    metrics: Mapping[str, object] | None
    seconds: float = 0.0
    joint: JointEvaluation | None = None
    state: RuleState | None = None


@dataclass
class History:
    """The rounds of a run that are complete."""

    result: RoundResult | None = None
    """The last complete round."""
    refusals: Refusals = field(default_factory=Refusals)
    divergence: Divergence = field(default_factory=Divergence)
    sampled: bool = False
    """Whether any client was asked to train."""
    trained: bool = False
    """Whether any client's update was used."""

    def note(self, result: RoundResult) -> None:
        """Note a round that is complete.

        Raises
        ------
        RunFailed
            When its model is not finite.
        """
        self.result = result
        self.refusals.note(result)
        self.sampled |= bool(result.train.metrics or result.train.failures)
        self.trained |= bool(result.train.metrics)
        self.divergence.note(result)

    @property
    def found_nobody(self) -> bool:
        """Whether clients were asked to train, and none was evaluated in the last round."""
        result = self.result
        return self.sampled and not (result and (result.evaluate.metrics or result.global_metrics))


def add_round(totals: RunTotals, server_round: int, seconds: float, exchange: Exchange, updates: int) -> None:
    """Add a round's seconds, bytes and used updates, and where its clients ran."""
    place = dict(getattr(exchange.grid, "place", FLOWER))
    last = totals.runtime[-1] if totals.runtime else {}
    if {"from-round": last.get("from-round"), **place} != last:
        totals.runtime.append({"from-round": server_round, **place})
    train, evaluate = exchange.seconds[MessageType.TRAIN], exchange.seconds[MessageType.EVALUATE]
    totals.train_seconds += train
    totals.evaluate_seconds += evaluate
    totals.server_seconds += seconds - train - evaluate
    totals.bytes_sent += exchange.bytes_sent
    totals.bytes_received += exchange.bytes_received
    totals.client_updates += updates


def last_sure_checkpoint(config: RunConfig, server_round: int) -> int:
    """Return the last round whose checkpoint is on the disk by now; a later one may still be on its way."""
    every = config.checkpoint_every or 1
    return max(0, (server_round - 1) // every - 1) * every

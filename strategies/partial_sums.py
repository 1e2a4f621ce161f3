"""Sums of a group's answers, made where the clients are."""

from collections.abc import Mapping

from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from .aggregation.fold import TrainPhase
from .base import PseudoGradientStrategy
from .messages.validation import weighted_metrics
from .messages.wire import SUM_WEIGHTS, SUMS
from .reply_reader import Reading
from .rule import ServerRule

AS_THE_BASE = (
    "__init__", "_check_and_log_replies", "_construct_messages", "aggregate_train", "configure_train",
    "new_round",
)  # fmt: skip
"""Methods that a rule may not have of its own, if its answers are to be summed before they come."""


def can_be_summed(rule: PseudoGradientStrategy) -> bool:
    """Whether the rule uses nothing of an answer but what `GroupSum` makes of it, and its metrics."""
    base, own = PseudoGradientStrategy, type(rule)
    reader = next(cls for cls in own.__mro__ if "read_extras" in vars(cls))
    return (
        rule._mean_ == "weighted"
        and rule.train_metrics_aggr_fn is weighted_metrics
        and all(getattr(own, name) is getattr(base, name) for name in AS_THE_BASE)
        and (reader is ServerRule or vars(reader).get("reads_extras_anywhere") is True)
    )


def take_sums(rule: PseudoGradientStrategy) -> None:
    """Have the rule take answers whose models a `GroupSum` has summed. Only from a simulation's own
    processes: a sum cannot be checked."""
    rule._takes_sums_ = True


def takes_sums(rule: PseudoGradientStrategy) -> bool:
    """Whether it does."""
    return rule._takes_sums_


class GroupSum:
    """What the answers of a group come to: the same checks and the same arithmetic as at the server.

    Parameters
    ----------
    rule : PseudoGradientStrategy
        The server's rule, as it is set there; `can_be_summed`. It is read, never changed.
    server_round : int
        The round.
    sent : Mapping[str, NDArray]
        The model that was sent.
    """

    def __init__(self, rule: PseudoGradientStrategy, server_round: int, sent: Mapping[str, NDArray]) -> None:
        self._reading = Reading(rule, server_round, TrainPhase(sent))
        self._partial = self._reading.new_partial()

    def add(self, content: RecordDict, arrays: Mapping[str, NDArray]) -> None:
        """Add the answer of this content, without its model, which is given as it is.

        Raises
        ------
        ReplyRefused
            When the server could not use it; it is not added.
        """
        found = self._reading.read(content, arrays)
        assert found.answer
        self._reading.sum(self._partial, found.answer, found.extras)

    def records(self) -> dict[str, ArrayRecord | MetricRecord]:
        """The records of the sum, which one of the answers is to carry."""
        sums, weights = self._partial.to_records()
        return {SUMS: sums, SUM_WEIGHTS: weights}

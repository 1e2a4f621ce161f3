"""Sum the answers of a group of clients in their worker process."""

from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import overridden
from fedbn_flower.core.ground.wire import SUM_WEIGHTS, SUMS, UPDATE_BOUND, UPDATE_STEP

from .aggregation.fold import TrainPhase
from .base import PseudoGradientStrategy
from .messages.validation import weighted_metrics
from .reply_reader import ReplyReader

AS_THE_BASE = (
    "__init__", "_check_and_log_replies", "_construct_messages", "aggregate_train", "answer_weights",
    "collect_train", "configure_train", "new_round", "step_train",
)  # fmt: skip
"""Methods that a rule must not override if workers are to sum its answers."""


def can_be_summed(rule: PseudoGradientStrategy) -> bool:
    """Return whether the rule needs only the `GroupSum` and the metrics of its answers."""
    cls = type(rule)
    reader = next(parent for parent in cls.__mro__ if "read_extras" in vars(parent))
    return (
        rule._mean_ == "weighted"
        and rule.train_metrics_aggr_fn is weighted_metrics
        and not overridden(cls, PseudoGradientStrategy, AS_THE_BASE)
        and (reader is PseudoGradientStrategy or vars(reader).get("reads_extras_anywhere") is True)
    )


def take_sums(rule: PseudoGradientStrategy) -> None:
    """Let the rule accept sums of a `GroupSum`.

    Use it only with a simulation's own processes: the server cannot check a sum.
    """
    rule._takes_sums_ = True


def takes_sums(rule: PseudoGradientStrategy) -> bool:
    """Return whether the rule accepts sums."""
    return rule._takes_sums_


def bounds_in(config: Mapping[str, Any]) -> tuple[float, float]:
    """Return the bound and the step of a `GroupSum` from a train message's configuration."""
    return float(config.get(UPDATE_BOUND, 0.0)), float(config.get(UPDATE_STEP, 0.0))


class GroupSum:
    """The sum of a group's answers, with the same checks and arithmetic as on the server.

    Parameters
    ----------
    rule : PseudoGradientStrategy
        The server's rule with its settings, for which `can_be_summed` holds. It is not changed.
    server_round : int
        Number of the round.
    sent : Mapping[str, NDArray]
        The model that was sent.
    bound, step : float
        As in `TrainPhase`.
    """

    def __init__(
        self,
        rule: PseudoGradientStrategy,
        server_round: int,
        sent: Mapping[str, NDArray],
        bound: float = 0.0,
        step: float = 0.0,
    ) -> None:
        self._reading = ReplyReader(rule._reading_(), server_round, TrainPhase(sent, bound=bound, step=step))
        self._partial = self._reading.new_partial_sum()

    def add(self, content: RecordDict, arrays: Mapping[str, NDArray]) -> None:
        """Add an answer. Its model is not in ``content`` but given as ``arrays``, not encoded.

        Raises
        ------
        ReplyRefused
            When the answer is not usable; it is then not added.
        """
        read = self._reading.read(content, arrays)
        assert read.answer
        self._reading.sum(self._partial, read.answer, read.extras)

    def records(self) -> dict[str, ArrayRecord | MetricRecord]:
        """Return the records of the sum. One answer of the group carries them."""
        sums, weights = self._partial.to_records()
        return {SUMS: sums, SUM_WEIGHTS: weights}

"""The answers of a train phase as they are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from .aggregation.fold import Extras, Fold, Partial, Round, TrainPhase
from .aggregation.means import new_mean
from .aggregation.vectors import Vector
from .messages.validation import (
    MAX_WEIGHT,
    Answer,
    ReplyRefused,
    check_train_reply,
    clipping_factor,
    weighted_metrics,
)
from .messages.wire import METRICS, SUM_WEIGHTS, SUMS
from .rule import ServerRule


@dataclass(frozen=True)
class Read:
    """What is used of an answer: the answer itself and the rule's extras; or, where answers were summed by
    group before they came, its metrics, and in one answer of each group the sum."""

    metrics: MetricRecord
    answer: Answer | None = None
    extras: Extras = field(default_factory=Extras)
    group: Partial | None = None


class Reading:
    """The fold over the answers, and what their metrics are made from.

    ``round`` is None until it is known what the model looks like: where none was sent, the first answer says
    so. ``metrics`` are by partition; ``contents`` is what the metric function is given.

    Parameters
    ----------
    rule : ServerRule
        Whose round it is.
    server_round : int
        Its number.
    phase : TrainPhase
        What was sent.
    count : int
        How many messages it has.
    """

    def __init__(self, rule: ServerRule, server_round: int, phase: TrainPhase, count: int = 0) -> None:
        self.rule = rule
        self.server_round = server_round
        self.phase = phase
        self.round: Round | None = None
        self.metrics: dict[int, MetricRecord] = {}
        self.contents: list[RecordDict] = []
        self.fold = Fold(self.new_partial, count)
        self._reference: tuple[Vector, Vector] | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}  # of the extras, as the first answer has them
        if phase.model:
            self._begin(phase)

    def _begin(self, phase: TrainPhase) -> None:
        self.round = self.rule.new_round(self.server_round, phase)
        self._reference = self.round.reference()

    def new_partial(self) -> Partial:
        """An empty sum of this round's answers."""
        assert self.round
        assert self._reference
        return Partial(
            self._reference, self.round.layout, partial(new_mean, self.rule._mean_, self.rule._trim_)
        )

    def read(self, content: RecordDict, arrays: Mapping[str, NDArray] | None = None) -> Read:
        """Check an answer; ``arrays`` are its model, where that was never encoded.

        Raises
        ------
        ReplyRefused
            When it cannot be used.
        """
        rule, sent = self.rule, self.round.sent if self.round else None
        if rule._takes_sums_ and rule.arrayrecord_key not in content:
            return self._summed(content)
        cap = rule._max_weight_ or MAX_WEIGHT
        answer = check_train_reply(content, sent, rule.arrayrecord_key, rule.weighted_by_key, cap, arrays)
        rule.expected_metrics.check(answer.metrics)
        if self.round is None:
            zeros = {name: np.zeros_like(array) for name, array in answer.arrays.items()}
            self._begin(replace(self.phase, model=zeros))
        assert self.round
        extras = rule.read_extras(answer, self.round)
        for name, vector in extras.vectors.items():
            if vector.shape != (wanted := self._shapes.setdefault(name, vector.shape)):
                raise ReplyRefused(f"{name}: shape {vector.shape}, expected {wanted}", "shape")
        return Read(answer.metrics, answer, extras)

    def _summed(self, content: RecordDict) -> Read:
        metrics, sums, weights = (content.get(name) for name in (METRICS, SUMS, SUM_WEIGHTS))
        assert isinstance(metrics, MetricRecord)
        if not isinstance(sums, ArrayRecord) or not isinstance(weights, MetricRecord):
            return Read(metrics)
        assert self.round
        assert self._reference
        return Read(metrics, group=Partial.from_records(self._reference, self.round.layout, sums, weights))

    def sum(self, into: Partial, answer: Answer, extras: Extras) -> None:
        """Add an answer to a partial sum."""
        assert self.round
        rule, factor = self.rule, extras.factor
        if rule._clip_update_norm_:
            tensors = self.round.layout.tensors
            most = rule._clip_update_norm_ / max(1.0, abs(factor))
            factor *= clipping_factor(answer.arrays, self.round.sent, tensors, most)
        weight = 1.0 if rule.weighs_alike else answer.weight
        into.add(answer, weight, factor, extras.vectors, extras.weight)

    def add(self, place: int, partition: int, found: Read) -> None:
        """Add what was read to the fold."""
        self.metrics[partition] = found.metrics
        content = RecordDict({METRICS: found.metrics})
        if found.answer:
            self.sum(self.fold.group_of(place), found.answer, found.extras)
            # The whole answer only for those who ask for it: a model per client would stay until the end.
            own = self.rule.train_metrics_aggr_fn is not weighted_metrics
            content = found.answer.content if own else content
        elif found.group:
            self.fold.put(place, found.group)
        self.contents.append(content)

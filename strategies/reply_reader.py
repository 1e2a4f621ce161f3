"""Read the answers of a train phase: check each one and add it to the fold."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from .aggregation.buffers import Stale
from .aggregation.fold import WITHIN, Extras, Fold, PartialSum, Round, TrainPhase
from .aggregation.means import new_mean
from .aggregation.vectors import all_finite, finite
from .messages.gate import ReplyRefused, refusing
from .messages.npy import viewed
from .messages.validation import (
    MAX_WEIGHT,
    Answer,
    check_train_reply,
    clipping_factor,
    update_norm,
    weighted_metrics,
)
from .messages.wire import METRICS, SUM_WEIGHTS, SUMS
from .rule import ServerRule

ROUNDING = 1 - 1e-6
"""Factor on the bound of a sum, so that no rounding of float32 takes a difference beyond it."""


@dataclass(frozen=True)
class CheckedReply:
    """The used parts of an answer.

    It has either the answer and the rule's extras; or, if workers summed the answers, only its metrics. Then
    one answer of each group has the group's sum.
    """

    metrics: MetricRecord
    answer: Answer | None = None
    states: Mapping[str, NDArray] = field(default_factory=dict)
    extras: Extras = field(default_factory=Extras)
    group: PartialSum | None = None


class ReplyReader:
    """Checks the answers of a round, and keeps their metrics.

    ``round`` is None until the model's layout is known: if no model was sent, the first answer gives it.
    ``reference`` is the model that the answers are differences to.
    ``metrics`` are by partition; ``contents`` is the argument of the metric function.

    Parameters
    ----------
    rule : ServerRule
        The rule of the round.
    server_round : int
        Number of the round.
    phase : TrainPhase
        The model that was sent.
    """

    def __init__(self, rule: ServerRule, server_round: int, phase: TrainPhase) -> None:
        self.rule = rule
        self.server_round = server_round
        self.phase = phase
        self.round: Round | None = None
        self.metrics: dict[int, MetricRecord] = {}
        self.contents: list[RecordDict] = []
        self.reference: Mapping[str, NDArray] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}  # of the extras, from the first answer
        self._versions: dict[int, Mapping[str, NDArray]] = {}  # models of the buffer
        if phase.model:
            self._begin(phase)

    def _begin(self, phase: TrainPhase) -> None:
        self.round = self.rule.new_round(self.server_round, phase)
        self.reference = finite(self.round.sent)

    def new_partial_sum(self) -> PartialSum:
        """Return an empty sum of this round's answers."""
        assert self.round
        mean = partial(new_mean, self.rule._mean_, self.rule._trim_)
        return PartialSum(self.reference, self.round.layout, mean, whole=self.phase.step > 0)

    def read(self, content: RecordDict, arrays: Mapping[str, NDArray] | None = None) -> CheckedReply:
        """Check an answer. ``arrays`` is its model if that was never encoded.

        Raises
        ------
        ReplyRefused
            When it is not usable.
        """
        rule, sent = self.rule, self.round.sent if self.round else None
        if rule._takes_sums_ and rule.arrayrecord_key not in content:
            return self._summed(content)
        cap = rule._max_weight_ or MAX_WEIGHT
        with refusing():
            answer = check_train_reply(content, sent, rule.arrayrecord_key, rule.weighted_by_key, cap, arrays)
            states = rule.expected_metrics.read(content, answer.metrics)
        if self.round is None:
            zeros = {name: np.zeros_like(array) for name, array in answer.arrays.items()}
            self._begin(replace(self.phase, model=zeros))
        assert self.round
        if self.phase.bound:
            self._check_finite(answer)
            return CheckedReply(answer.metrics, answer, states)
        extras = rule.read_extras(answer, self.round)
        for name, vector in extras.vectors.items():
            if vector.shape != (expected := self._shapes.setdefault(name, vector.shape)):
                raise ReplyRefused(f"{name}: shape {vector.shape}, expected {expected}", "shape")
        return CheckedReply(answer.metrics, answer, states, extras)

    def _summed(self, content: RecordDict) -> CheckedReply:
        metrics, sums, weights = (content.get(name) for name in (METRICS, SUMS, SUM_WEIGHTS))
        assert isinstance(metrics, MetricRecord)
        states = self.rule.expected_metrics.check_states(content)
        if not isinstance(sums, ArrayRecord) or not isinstance(weights, MetricRecord):
            return CheckedReply(metrics, states=states)
        assert self.round
        return CheckedReply(
            metrics,
            states=states,
            group=PartialSum.from_records(self.reference, self.round.layout, sums, weights),
        )

    def _check_finite(self, answer: Answer) -> None:
        """Refuse an answer with stepped entries that are not finite, also where they were sent so."""
        assert self.round
        for name in self.round.layout.parameters:
            if not all_finite(answer.arrays[name]):
                raise ReplyRefused(f"{name}: not finite")

    def _stale(self, position: int) -> Stale | None:
        """Return how the answer to a buffer's message counts."""
        if not (buffer := self.phase.buffer) or position >= len(buffer.answers):
            return None
        version = buffer.answers[position].version
        factor = buffer.protocol.factor(buffer.current - version)
        if buffer.protocol.from_current or version == buffer.current:
            return Stale(factor, None)
        if version not in self._versions:
            self._versions[version] = {name: viewed(a) for name, a in buffer.models[version].items()}
        return Stale(factor, self._versions[version])

    def sum(
        self,
        into: PartialSum,
        answer: Answer,
        extras: Extras,
        hold: bool = False,
        stale: Stale | None = None,
    ) -> None:
        """Add an answer to a partial sum; ``hold`` and ``stale`` as in `PartialSum.add`."""
        assert self.round
        rule, factor, tensors = self.rule, extras.factor, self.round.layout.tensors
        if bound := self.phase.bound:
            norm = update_norm(answer.arrays, self.reference, tensors)
            within = np.array([0.5 if norm <= bound else -0.5])
            into.add(answer, 1.0, self._factor(norm), {WITHIN: within}, hold=hold)
            return
        if rule._clip_update_norm_:
            bound = rule._clip_update_norm_ / max(1.0, abs(factor))
            sent = (stale and stale.model) or self.round.sent
            factor *= clipping_factor(update_norm(answer.arrays, sent, tensors), bound)
        if stale and stale.model:
            stale = stale._replace(model=finite(stale.model))
        weight = 1.0 if rule.weighs_alike else answer.weight
        into.add(answer, weight, factor, extras.vectors, extras.weight, hold, stale)

    def _factor(self, norm: float) -> float:
        """Return the factor under a mechanism on a difference of this norm; with a grid it gives steps.

        Rounding moves d numbers by half a step each at most. So a difference is clipped by that much shorter.
        """
        assert self.round
        bound, step = self.phase.bound * ROUNDING, self.phase.step
        if not step:
            return clipping_factor(norm, bound)
        size = sum(self.reference[names[0]].size for names in self.round.layout.tensors)
        return clipping_factor(norm, max(0.0, bound - step * math.sqrt(size) / 2)) / step

    def add(self, fold: Fold, position: int, partition: int, read: CheckedReply) -> None:
        """Add an answer to a fold of `new_partial_sum`. ``position`` is that of its message in the round."""
        self.metrics[partition] = read.metrics
        content = RecordDict({METRICS: read.metrics})
        if read.answer:
            stale = self._stale(position)
            self.sum(fold.group_of(position), read.answer, read.extras, hold=True, stale=stale)
            # Only a custom metric function gets the whole answer: it keeps a model per client in memory.
            custom = self.rule.train_metrics_aggr_fn is not weighted_metrics
            content = read.answer.content if custom else content
        elif read.group:
            fold.put(position, read.group)
        self.contents.append(content)

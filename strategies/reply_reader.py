"""Read the answers of a train phase: check each one and add it to the fold."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import METRICS, SUM_WEIGHTS, SUMS

from .aggregation.buffers import Stale
from .aggregation.fold import WITHIN, Extras, Fold, PartialSum, Round, TrainPhase
from .aggregation.means import MeanOfDifferences
from .aggregation.vectors import all_finite, finite
from .expected import ExpectedMetrics
from .messages.gate import ReplyRefused, refusing
from .messages.npy import viewed
from .messages.validation import (
    MAX_LENGTH,
    MAX_WEIGHT,
    Answer,
    check_train_reply,
    clipping_factor,
    update_norm,
)

ROUNDING = 1 - 1e-6
"""Factor on the bound of a sum, so that no rounding of float32 takes a difference beyond it."""


@dataclass(frozen=True)
class Reading:
    """How a rule reads and weights the answers of a round.

    Parameters
    ----------
    mean : callable
        Returns an empty mean of differences to a reference.
    max_weight : float
        The largest weight that an answer may report.
    max_norm : float
        The bound on the L2 norm of an answer's difference; 0 for none.
    weighs_alike : bool
        Whether all models have equal weight.
    takes_sums : bool
        Whether workers may have summed the answers.
    keeps_answers : bool
        Whether the metric function gets whole answers, which keeps a model per client in memory.
    arrays_key : str
        The name of the record with an answer's model.
    weight_key : str, optional
        The metric by which answers are weighted; None for equal weights.
    expected : ExpectedMetrics
        The allowed metrics.
    new_round : callable
        Returns the round before its answers are read.
    read_extras : callable
        Reads further vectors from an answer.
    """

    mean: Callable[[Sequence[NDArray], np.dtype], MeanOfDifferences]
    max_weight: float
    max_norm: float
    weighs_alike: bool
    takes_sums: bool
    keeps_answers: bool
    arrays_key: str
    weight_key: str | None
    expected: ExpectedMetrics
    new_round: Callable[[int, TrainPhase], Round]
    read_extras: Callable[[Answer, Round], Extras]


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
    how : Reading
        The rule's way of reading.
    server_round : int
        Number of the round.
    phase : TrainPhase
        The model that was sent.
    """

    def __init__(self, how: Reading, server_round: int, phase: TrainPhase) -> None:
        self.how = how
        self.server_round = server_round
        self.phase = phase
        self.round: Round | None = None
        self.weights: Mapping[int, float] | None = None
        """The weights of the answers, by partition; None for those that they report."""
        self.metrics: dict[int, MetricRecord] = {}
        self.contents: list[RecordDict] = []
        self.reference: Mapping[str, NDArray] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}  # of the extras, from the first answer
        self._versions: dict[int, Mapping[str, NDArray]] = {}  # models of the buffer
        if phase.model:
            self._begin(phase)

    def _begin(self, phase: TrainPhase) -> None:
        self.round = self.how.new_round(self.server_round, phase)
        self.reference = finite(self.round.sent)

    def new_partial_sum(self) -> PartialSum:
        """Return an empty sum of this round's answers."""
        assert self.round
        return PartialSum(self.reference, self.round.layout, self.how.mean, whole=self.phase.step > 0)

    def read(self, content: RecordDict, arrays: Mapping[str, NDArray] | None = None) -> CheckedReply:
        """Check an answer. ``arrays`` is its model if that was never encoded.

        Raises
        ------
        ReplyRefused
            When it is not usable.
        """
        how, sent = self.how, self.round.sent if self.round else None
        if how.takes_sums and how.arrays_key not in content:
            return self._summed(content)
        with refusing():
            answer = check_train_reply(content, sent, how.arrays_key, how.weight_key, how.max_weight, arrays)
            states = how.expected.read(content, answer.metrics)
        if self.round is None:
            zeros = {name: np.zeros_like(array) for name, array in answer.arrays.items()}
            self._begin(replace(self.phase, model=zeros))
        assert self.round
        if self.phase.bound:
            self._check_finite(answer)
            return CheckedReply(answer.metrics, answer, states)
        with refusing():
            extras = how.read_extras(answer, self.round)
        self._check_summable(answer, extras)
        for name, vector in extras.vectors.items():
            if vector.shape != (expected := self._shapes.setdefault(name, vector.shape)):
                raise ReplyRefused(f"{name}: shape {vector.shape}, expected {expected}", "shape")
        return CheckedReply(answer.metrics, answer, states, extras)

    def _check_summable(self, answer: Answer, extras: Extras) -> None:
        """Refuse an answer whose weighted vectors would overflow the sum, whatever it is divided by."""
        assert self.round
        scale = abs(extras.factor) * extras.share * (1.0 if self.how.weighs_alike else answer.weight)
        length = MAX_LENGTH
        if scale > MAX_WEIGHT:
            length = update_norm(answer.arrays, self.reference, self.round.layout.tensors)
        vectors = all(all_finite(vector) for vector in extras.vectors.values())
        if not (scale * length <= MAX_WEIGHT * MAX_LENGTH and math.isfinite(scale) and vectors):
            raise ReplyRefused(f"its update counts {scale:.6g} times, which is too much for a sum")

    def _summed(self, content: RecordDict) -> CheckedReply:
        metrics, sums, weights = (content.get(name) for name in (METRICS, SUMS, SUM_WEIGHTS))
        assert isinstance(metrics, MetricRecord)
        states = self.how.expected.check_states(content)
        if not isinstance(sums, ArrayRecord) or not isinstance(weights, MetricRecord):
            return CheckedReply(metrics, states=states)
        assert self.round
        return CheckedReply(
            metrics,
            states=states,
            group=PartialSum.from_records(self.reference, self.round.layout, sums, weights),
        )

    def _check_finite(self, answer: Answer) -> None:
        """Refuse an answer with stepped entries that are not finite, even if they were sent so."""
        assert self.round
        for name in self.round.layout.parameters:
            if not all_finite(answer.arrays[name]):
                raise ReplyRefused(f"{name}: not finite")

    def _stale(self, position: int) -> Stale | None:
        """Return the staleness factor and model of the answer to a buffer's message."""
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
        how, factor, tensors = self.how, extras.factor, self.round.layout.tensors
        if bound := self.phase.bound:
            norm = update_norm(answer.arrays, self.reference, tensors)
            within = np.array([0.5 if norm <= bound else -0.5])
            into.add(answer, 1.0, self._factor(norm), {WITHIN: within}, hold=hold)
            return
        if how.max_norm:
            bound = how.max_norm / max(1.0, abs(factor))
            sent = (stale and stale.model) or self.round.sent
            factor *= clipping_factor(update_norm(answer.arrays, sent, tensors), bound)
        if stale and stale.model:
            stale = stale._replace(model=finite(stale.model))
        weight = extras.share * (1.0 if how.weighs_alike else answer.weight)
        into.add(answer, weight, factor, extras.vectors, extras.weight, hold, stale)

    def _factor(self, norm: float) -> float:
        """Return a mechanism's factor on a difference of this norm; with a grid, the result is in grid steps.

        Rounding moves each of d numbers by at most half a step, so the clipping bound is reduced by that
        much.
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
            answer = read.answer
            if self.weights is not None:
                answer = replace(answer, weight=self.weights.get(partition, 0.0))
            stale = self._stale(position)
            self.sum(fold.group_of(position), answer, read.extras, hold=True, stale=stale)
            content = answer.content if self.how.keeps_answers else content
        elif read.group:
            fold.put(position, read.group)
        self.contents.append(content)

    @property
    def is_weightless(self) -> bool:
        """Whether the answers have weights by partition that are all 0."""
        return self.weights is not None and not any(self.weights.get(p) for p in self.metrics)

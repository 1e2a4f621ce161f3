"""`Round`, the input of a rule, and `Fold`, which computes its means in a fixed order."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from numpy.typing import NDArray

from fedbn_flower.core.ground.wire import UPDATE_BOUND, UPDATE_STEP

from ..messages.gate import record_of
from ..messages.npy import encoded, viewed
from ..messages.sampling import Mechanism
from ..messages.validation import Answer, check_arrays
from .buffers import Buffer, Stale
from .means import MeanOfDifferences, Summand, SumOfWholes, WeightedMean
from .rule_state import RuleState
from .vectors import Layout, Vector
from .whole_answers import WholeAnswers

GROUP = 8  # most answers per group; groups are in partition order

PARAMETERS, STATISTICS, WITHIN = "parameters", "statistics", "within"


@dataclass(frozen=True)
class TrainPhase:
    """State passed from `configure_train` to `aggregate_train`, which Flower calls separately.

    Parameters
    ----------
    model : Mapping[str, NDArray] or ArrayRecord, optional
        The model that was sent; None or empty if there was none. It is an ArrayRecord if it was assigned to
        ``current_arrays``, as Flower's FedAvgM does.
    num_nodes : int
        Number of connected nodes that take part.
    bound : float
        Bound on the L2 norm of an answer's difference under a `Mechanism`, with which answers have weight 1;
        0 without.
    step : float
        The step of the grid to which clipped differences are rounded, so that they are summed as integers; 0
        for none.
    buffer : Buffer, optional
        Which version of the model each client was sent, under an asynchronous protocol.
    """

    model: Mapping[str, NDArray] | ArrayRecord | None = None
    num_nodes: int = 0
    bound: float = 0.0
    step: float = 0.0
    buffer: Buffer | None = None

    def sent(self) -> Mapping[str, NDArray]:
        """Return the model's arrays by name."""
        if isinstance(self.model, ArrayRecord):
            return {name: viewed(array) for name, array in self.model.items()}
        return self.model or {}

    def under(self, mechanism: Mechanism | None) -> "TrainPhase":
        """Return the phase with the bounds of a mechanism."""
        return replace(self, bound=mechanism.bound, step=mechanism.step) if mechanism else self

    def bounds(self) -> dict[str, float]:
        """Return a mechanism's bounds for workers, by their names on the wire."""
        bounds = {UPDATE_BOUND: self.bound, UPDATE_STEP: self.step}
        return {name: value for name, value in bounds.items() if value}


CURRENT_ARRAYS = property(
    lambda rule: rule._train_phase_.model,
    lambda rule, arrays: setattr(rule, "_train_phase_", replace(rule._train_phase_, model=arrays)),
    doc="The model that was sent last, as in Flower's classes with an attribute of this name.",
)


@dataclass(frozen=True, eq=False)
class Round:
    """One round, as a rule receives it.

    Parameters
    ----------
    number : int
        The server's round, 1, 2, ...
    update : int
        t, the number of this update of the model, 1, 2, ...: rounds without a result do not count.
    layout : Layout
        Positions of the model's entries in the flat vectors.
    sent : Mapping[str, NDArray]
        The model that was sent; zeros if it is not known.
    num_nodes : int
        Number of connected nodes that take part, at the start of the round.
    num_answers : float
        Number of answers used; under a `Mechanism` the expected number.
    metrics : Mapping[int, MetricRecord]
        The answers' metrics by partition, in partition order.
    means : Mapping[str, Vector]
        The means of the vectors in `Extras`, by name.
    """

    number: int
    update: int
    layout: Layout
    sent: Mapping[str, NDArray]
    num_nodes: int
    num_answers: float = 0
    metrics: Mapping[int, MetricRecord] = field(default_factory=dict)
    means: Mapping[str, Vector] = field(default_factory=dict)
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | float):
            raise TypeError(f"a round is compared with {other}: its number is round.number")
        return self is other


@dataclass(frozen=True)
class Extras:
    """What a rule reads from one answer in addition to the model.

    Parameters
    ----------
    factor : float
        Factor on the answer's difference ``x_i - x``.
    vectors : Mapping[str, Vector]
        Vectors by name. They are averaged like the model; the rule gets them as `Round.means`.
    weight : float, optional
        Weight of the vectors; the model's weight by default.
    share : float
        Factor on the weight of the whole answer, after which weights need not sum to 1.
    """

    factor: float = 1.0
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    weight: float | None = None
    share: float = 1.0

    @classmethod
    def like_parameters(cls, name: str, answer: Answer, round: Round) -> "Extras":
        """Return the vector of an answer's ArrayRecord ``name``, with the entries of the stepped parameters.

        Raises
        ------
        ReplyRefused
            When it is missing, or has other entries, shapes or dtypes, or values that are not finite.
        """
        expected = {entry: np.zeros_like(round.sent[entry]) for entry in round.layout.parameters}
        found = check_arrays(record_of(answer.content, name, ArrayRecord), expected)
        return cls(vectors={name: round.layout.flatten_parameters(found)})


class PartialSum:
    """Partial sums of some answers of a round. They can be computed by a worker, merged and sent.

    Parameters
    ----------
    reference : Mapping[str, NDArray]
        The model that was sent, `finite`.
    layout : Layout
        The round's layout.
    new_mean : callable
        Makes an empty mean of differences to a reference.
    whole : bool
        Whether parameters are summed as integers.
    """

    def __init__(
        self,
        reference: Mapping[str, NDArray],
        layout: Layout,
        new_mean: Callable[[Sequence[NDArray], np.dtype], MeanOfDifferences] = WeightedMean,
        whole: bool = False,
    ) -> None:
        self.layout = layout
        self.new_mean = new_mean
        self.sums = {
            kind: new_mean([reference[name].reshape(-1) for name in names], dtype)
            for kind, names, dtype in zip(
                (PARAMETERS, STATISTICS), (layout.parameters, layout.statistics), layout.dtypes, strict=True
            )
        }
        if whole:
            self.sums[PARAMETERS] = SumOfWholes([reference[name].reshape(-1) for name in layout.parameters])

    def add(
        self,
        answer: Answer,
        weight: float,
        factor: float,
        extras: Mapping[str, Vector],
        extras_weight: float | None = None,
        hold: bool = False,
        stale: Stale | None = None,
    ) -> None:
        """Add an answer. With ``hold`` its model is summed later, with the next ones, and must not change.

        ``factor`` scales the difference of its parameters. ``extras_weight`` weighs the extras; by default
        it is ``weight``. ``stale`` says how an answer in a buffer counts.
        """
        arrays, layout = answer.arrays, self.layout
        own = [stale.model[n].reshape(-1) for n in layout.parameters] if stale and stale.model else None
        kept = stale.factor if stale else 1.0
        for kind, names, scale, reference in (
            (PARAMETERS, layout.parameters, factor * kept, own),
            (STATISTICS, layout.statistics, kept, None),
        ):
            mean, summand = self.sums[kind], Summand((arrays[n] for n in names), weight, scale, reference)
            (mean.hold if hold else mean.add)(summand)
        for name, vector in extras.items():
            own_weight = weight if extras_weight is None else extras_weight
            self._sum(name, vector).add(Summand([vector], own_weight))

    def merge(self, other: "PartialSum") -> None:
        """Append the answers of another partial sum."""
        for name, mean in other.sums.items():
            if name in self.sums:
                self.sums[name].merge(mean)
            else:
                self.sums[name] = mean

    def means(self, state: RuleState | None = None) -> dict[str, Vector]:
        """Return every mean by name. Call it once: it divides the sums in place.

        A mean of whole answers may use and change the rule's ``state``.
        """
        stepped = self.sums[PARAMETERS]
        found = {PARAMETERS: stepped.mean_of(state) if isinstance(stepped, WholeAnswers) else stepped.mean()}
        for name, mean in self.sums.items():
            if name == PARAMETERS:
                continue
            if isinstance(stepped, WholeAnswers) and isinstance(mean, WholeAnswers):
                found[name] = mean.beside(stepped)
            else:
                found[name] = mean.mean()
        return found

    def total(self, name: str) -> Vector:
        """Return the weighted sum of a name, undivided."""
        mean = self.sums[name]
        assert isinstance(mean, WeightedMean)
        return mean.sum

    def _sum(self, name: str, like: Vector) -> MeanOfDifferences:
        if name not in self.sums:
            zeros = np.broadcast_to(like.dtype.type(0), like.shape)
            self.sums[name] = self.new_mean([zeros], like.dtype)
        return self.sums[name]

    def to_records(self) -> tuple[ArrayRecord, MetricRecord]:
        """Return the sums and their weights.

        Raises
        ------
        TypeError
            For a robust mean, which needs every answer.
        """
        sums = {name: mean for name, mean in self.sums.items() if isinstance(mean, WeightedMean)}
        if len(sums) < len(self.sums):
            raise TypeError("only a weighted mean has partial sums to send")
        return (
            ArrayRecord({name: encoded(mean.sum) for name, mean in sums.items()}),
            MetricRecord({name: mean.total_weight for name, mean in sums.items()}),
        )

    @classmethod
    def from_records(
        cls, reference: Mapping[str, NDArray], layout: Layout, sums: ArrayRecord, weights: MetricRecord
    ) -> "PartialSum":
        """Rebuild a partial sum from the records of `to_records`."""
        partial = cls(reference, layout)
        for name, array in sums.items():
            vector = np.array(viewed(array))
            mean = partial._sum(name, vector)
            assert isinstance(mean, WeightedMean)
            mean.sum, mean.total_weight = vector, float(weights[name])  # type: ignore[arg-type]
        return partial


def groups(count: int, size: int = GROUP) -> list[range]:
    """Split the positions 0, ..., ``count - 1`` into nearly even groups of at most ``size``.

    The number of groups is 1 or even: with an odd number, one of two processes idles
    during the last group.
    """
    parts = -(-count // size)
    if parts > 1:
        parts = min(parts + parts % 2, count)
    bounds = [count * i // parts for i in range(parts + 1)] if parts else []
    return [range(start, stop) for start, stop in pairwise(bounds)]


class Fold:
    """Sum answers by `groups`, then the groups in order.

    An answer's group follows from the position of its message in the round. So the result is bit-identical
    for any process that sums a group, and does not depend on which other answers are missing.

    Parameters
    ----------
    new_partial_sum : callable
        Makes an empty `PartialSum`.
    count : int
        Number of messages of the round. Answers to other messages form further groups at the end.
    """

    def __init__(self, new_partial_sum: Callable[[], PartialSum], count: int = 0) -> None:
        self._new_partial_sum = new_partial_sum
        self._count = count
        self._starts = [group.start for group in groups(count)]
        self._done: PartialSum | None = None
        self._group: tuple[int, PartialSum] | None = None

    def group_of(self, position: int) -> PartialSum:
        """Return the partial sum for the answer at this position. Positions must not decrease."""
        number = self._number(position)
        if self._group is None or self._group[0] != number:
            self._close()
            self._group = number, self._new_partial_sum()
        return self._group[1]

    def put(self, position: int, group: PartialSum) -> None:
        """Set the partial sum of the group at this position, computed in another process."""
        self._close()
        self._group = self._number(position), group

    def result(self) -> PartialSum:
        """Return the sum of all groups."""
        self._close()
        return self._done or self._new_partial_sum()

    def _number(self, position: int) -> int:
        if position < self._count:
            return bisect_right(self._starts, position)
        return len(self._starts) + 1 + (position - self._count) // GROUP

    def _close(self) -> None:
        if self._group:
            self._done = self._done or self._new_partial_sum()
            self._done.merge(self._group[1])
        self._group = None

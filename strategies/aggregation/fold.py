"""A round as a rule sees it, and the fold that makes its means."""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from numpy.typing import NDArray

from ..messages.npy import encoded
from ..messages.validation import Answer
from .means import MeanOfDifferences, WeightedMean
from .vectors import Layout, Vector, squared_norm

GROUP = 8  # answers that are summed together, at most, in partition order

PARAMETERS, STATISTICS = "parameters", "statistics"


@dataclass(frozen=True)
class TrainPhase:
    """What `configure_train` leaves for `aggregate_train`, which Flower calls apart from it.

    Parameters
    ----------
    model : Mapping[str, NDArray] or ArrayRecord, optional
        The model that was sent; None, or empty, where none was. A record where it was set by hand: Flower's
        FedAvgM keeps one.
    num_nodes : int
        How many nodes that take part were connected.
    """

    model: Mapping[str, NDArray] | ArrayRecord | None = None
    num_nodes: int = 0

    def sent(self) -> Mapping[str, NDArray]:
        """The model's arrays by name."""
        if isinstance(self.model, ArrayRecord):
            return {name: array.numpy() for name, array in self.model.items()}
        return self.model or {}


@dataclass(frozen=True)
class Round:
    """What a rule is told of its round.

    Parameters
    ----------
    number : int
        The server's round, 1, 2, ...
    update : int
        t, the number of this update of the model, 1, 2, ...: rounds without a result do not count.
    layout : Layout
        Where the model's entries stand in the flat vectors.
    sent : Mapping[str, NDArray]
        The model that was sent; zeros where it is not known.
    num_nodes : int
        How many nodes that take part were connected when the round began.
    num_answers : int
        How many answers count.
    metrics : Mapping[int, MetricRecord]
        Their metrics by partition, in partition order.
    means : Mapping[str, Vector]
        The means of what `Extras` took from them, by name.
    """

    number: int
    update: int
    layout: Layout
    sent: Mapping[str, NDArray]
    num_nodes: int
    num_answers: int = 0
    metrics: Mapping[int, MetricRecord] = field(default_factory=dict)
    means: Mapping[str, Vector] = field(default_factory=dict)

    def reference(self) -> tuple[Vector, Vector]:
        """The model sent as (parameters, statistics), 0 where it is not finite: differences are to that."""
        parameters, statistics = self.layout.flatten(self.sent)
        for vector in (parameters, statistics):
            if not np.isfinite(squared_norm(vector)):
                vector[~np.isfinite(vector)] = 0
        return parameters, statistics


@dataclass(frozen=True)
class Extras:
    """What a rule takes from one answer beside the model: a factor on its difference, and vectors by name,
    which are averaged like the model and given to the rule as `Round.means`. ``weight`` weighs the vectors
    where it is not to be what weighs the model."""

    factor: float = 1.0
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    weight: float | None = None


class Partial:
    """What some answers of a round come to: it can be made where they are, merged, and sent.

    Parameters
    ----------
    reference : tuple[Vector, Vector]
        `Round.reference`.
    layout : Layout
        The round's.
    new_mean : callable
        An empty mean of differences to a reference.
    """

    def __init__(
        self,
        reference: tuple[Vector, Vector],
        layout: Layout,
        new_mean: Callable[[Vector], MeanOfDifferences] = WeightedMean,
    ) -> None:
        self.layout = layout
        self.new_mean = new_mean
        self.sums = {PARAMETERS: new_mean(reference[0]), STATISTICS: new_mean(reference[1])}

    def add(
        self,
        answer: Answer,
        weight: float,
        factor: float,
        extras: Mapping[str, Vector],
        extras_weight: float | None = None,
    ) -> None:
        """Add an answer; ``factor`` scales the difference of its parameters, ``weight`` weighs the extras too
        if they have none of their own."""
        arrays, layout = answer.arrays, self.layout
        self.sums[PARAMETERS].add((arrays[name] for name in layout.parameters), weight, factor)
        self.sums[STATISTICS].add((arrays[name] for name in layout.statistics), weight)
        for name, vector in extras.items():
            self._sum(name, vector).add([vector], weight if extras_weight is None else extras_weight)

    def merge(self, other: "Partial") -> None:
        """Add another's answers after one's own."""
        for name, one in other.sums.items():
            if name in self.sums:
                self.sums[name].merge(one)
            else:
                self.sums[name] = one

    def means(self) -> dict[str, Vector]:
        """Every mean by name; asked for once."""
        return {name: one.mean() for name, one in self.sums.items()}

    def _sum(self, name: str, like: Vector) -> MeanOfDifferences:
        if name not in self.sums:
            self.sums[name] = self.new_mean(np.zeros_like(like))
        return self.sums[name]

    def to_records(self) -> tuple[ArrayRecord, MetricRecord]:
        """The sums and their weights, of a weighted mean: a robust one needs every answer."""
        sums = {name: one for name, one in self.sums.items() if isinstance(one, WeightedMean)}
        if len(sums) < len(self.sums):
            raise TypeError("only a weighted mean has partial sums to send")
        return (
            ArrayRecord({name: encoded(one.sum) for name, one in sums.items()}),
            MetricRecord({name: one.total_weight for name, one in sums.items()}),
        )

    @classmethod
    def from_records(
        cls, reference: tuple[Vector, Vector], layout: Layout, sums: ArrayRecord, weights: MetricRecord
    ) -> "Partial":
        """What `to_records` gave."""
        partial = cls(reference, layout)
        for name, array in sums.items():
            vector = array.numpy()
            one = partial._sum(name, vector)
            assert isinstance(one, WeightedMean)
            one.sum, one.total_weight = vector, float(weights[name])  # type: ignore[arg-type]
        return partial


def groups(count: int, size: int = GROUP) -> list[range]:
    """The places 0, ..., ``count - 1`` in groups of ``size`` at most, as even as can be.

    Several groups are an even number of them: the last of an odd number leaves half of two processes idle.
    """
    parts = -(-count // size)
    if parts > 1:
        parts = min(parts + parts % 2, count)
    bounds = [count * i // parts for i in range(parts + 1)] if parts else []
    return [range(start, stop) for start, stop in pairwise(bounds)]


class Fold:
    """Sums answers by `groups`, and the groups in their order.

    An answer's group is told by its place among the messages of the round, so the same answers give the same
    bits wherever a group was summed, and whichever answers are missing.

    Parameters
    ----------
    new_partial : callable
        An empty `Partial`.
    count : int
        How many messages the round has; answers to others come in groups of their own after them.
    """

    def __init__(self, new_partial: Callable[[], Partial], count: int = 0) -> None:
        self._new_partial = new_partial
        self._count = count
        self._starts = [group.start for group in groups(count)]
        self._done: Partial | None = None
        self._group: tuple[int, Partial] | None = None

    def group_of(self, place: int) -> Partial:
        """The partial sum that the answer at this place, not before the last one's, is to be added to."""
        number = self._number(place)
        if self._group is None or self._group[0] != number:
            self._close()
            self._group = number, self._new_partial()
        return self._group[1]

    def put(self, place: int, group: Partial) -> None:
        """Take the sum of the group of this place, which was made elsewhere."""
        self._close()
        self._group = self._number(place), group

    def result(self) -> Partial:
        """All of it."""
        self._close()
        return self._done or self._new_partial()

    def _number(self, place: int) -> int:
        if place < self._count:
            return bisect_right(self._starts, place)
        return len(self._starts) + 1 + (place - self._count) // GROUP

    def _close(self) -> None:
        if self._group is None:
            return
        if self._done is None:
            self._done = self._group[1]
        else:
            self._done.merge(self._group[1])
        self._group = None

"""Means over clients: the weighted mean, the coordinate-wise median and the trimmed mean.

The median and the trimmed mean bound the influence of a few malicious clients: Yin et al. 2018,
"Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates" (arXiv 1803.01498), Definitions 1
and 2.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from .vectors import BLOCK, Vector, blocks

HELD = 2**29  # at most so many bytes of vectors wait to be summed together
PART = 16  # blocks are smaller by this factor, as every answer has a row


class Summand(NamedTuple):
    """One client's part of a mean: ``factor`` times the difference of its vector, given entry by entry.

    The difference is to ``reference`` if given, else to the common reference.
    """

    entries: Iterable[NDArray]
    weight: float
    factor: float = 1.0
    reference: Sequence[NDArray] | None = None


class MeanOfDifferences(Protocol):
    """A mean of clients' differences to a reference, accumulated in parts."""

    def add(self, summand: Summand) -> None:
        """Add one client's difference."""

    def hold(self, summand: Summand) -> None:
        """As `add`, but deferred, at most until `merge` or `mean`; the entries must not change before."""

    def merge(self, other: Self) -> None:
        """Append the vectors of another mean of the same reference."""

    def mean(self) -> Vector:
        """Return the mean as one flat vector. Call it once, at the end."""


class WeightedMean:
    """``sum_i w_i (x_i - x) / sum_i w_i``, as a running sum.

    Vectors are not kept after they are summed, so memory does not grow with the number of clients. Summing
    ``x_i - x`` rather than ``x_i`` keeps the rounding error relative to the small difference.

    Held vectors are summed together, block by block, so x and the sum are read from memory once for all of
    them. The order of the additions, and so every bit of the result, is the same.

    Parameters
    ----------
    reference : Sequence[NDArray]
        The flat entries of the vector x that is subtracted.
    dtype : np.dtype
        The floating dtype of the arithmetic.
    """

    purpose = "The mean by examples, or of all alike with --weighting uniform: withstands no lie."
    helps: ClassVar[tuple[str, ...]] = ("baseline",)
    """What it is for: names of `core.methods.PURPOSES`, the main one first. Not inherited."""
    rounds: ClassVar[bool] = False
    """Whether each summand is rounded."""

    def __init__(self, reference: Sequence[NDArray], dtype: np.dtype) -> None:
        self.reference = reference
        self.dtype = dtype
        self.total_weight = 0.0
        self._sum: Vector | None = None
        self._held: list[tuple[list[NDArray], np.floating, Sequence[NDArray]]] = []

    @property
    def sum(self) -> Vector:
        """``sum_i w_i (x_i - x)``, including held vectors."""
        if self._sum is None:
            self._sum = np.zeros(sum(entry.size for entry in self.reference), self.dtype)
        self._add_held(self._sum)
        return self._sum

    @sum.setter
    def sum(self, vector: Vector) -> None:
        self._sum = vector

    def add(self, summand: Summand) -> None:
        self.hold(summand)
        self._add_held(self.sum)

    def hold(self, summand: Summand) -> None:
        flat = [entry.reshape(-1) for entry in summand.entries]
        own = self.reference if summand.reference is None else summand.reference
        self._held.append((flat, self.dtype.type(summand.weight * summand.factor), own))
        self.total_weight += summand.weight
        if len(self._held) * sum(entry.nbytes for entry in flat) > HELD:
            self._add_held(self.sum)

    def merge(self, other: "WeightedMean") -> None:
        if other._sum is None:
            other._add_held(self.sum, apart=True)
        else:
            self.sum += other.sum
        self.total_weight += other.total_weight

    def mean(self) -> Vector:
        total = self.sum
        total /= self.total_weight
        return total

    def _add_held(self, total: Vector, apart: bool = False) -> None:
        """Add the held vectors to ``total``, one by one or, ``apart``, as the sum of them."""
        if not self._held:
            return
        difference, group = np.empty((2, min(BLOCK, total.size)), self.dtype)
        stop = 0
        for number, reference in enumerate(self.reference):
            start, stop = stop, stop + reference.size
            for part in blocks(reference.size):
                into = total[start:stop][part]
                scratch = difference[: into.size]
                summed = group[: into.size] if apart else into
                if apart:
                    summed[:] = 0
                for entries, scale, own in self._held:
                    np.subtract(entries[number][part], own[number][part], out=scratch, dtype=self.dtype)
                    scratch *= scale
                    if self.rounds:
                        np.rint(scratch, out=scratch)
                    summed += scratch
                if apart:
                    into += summed
        self._held = []


class SumOfWholes(WeightedMean):
    """``sum_i round(w_i (x_i - x))`` in float64: exact, in any order, while it is below 2^53.

    Parameters
    ----------
    reference : Sequence[NDArray]
        The flat entries of the vector x that is subtracted.
    """

    rounds = True

    def __init__(self, reference: Sequence[NDArray]) -> None:
        super().__init__(reference, np.dtype(np.float64))


class TrimmedMean:
    """The coordinate-wise trimmed mean of differences to a reference. Clients are weighted equally.

    Of n values of a coordinate, the ``floor(trim n)`` lowest and as many highest are left out. A positive
    ``trim`` leaves out at least one at each end, so a lost answer does not switch trimming off, and
    never all. ``trim = 1/2`` leaves the middle one or two values: the coordinate-wise median.

    All answers are kept until the mean is computed: memory grows with the number of clients. The mean is
    computed block by block.

    Parameters
    ----------
    reference : Sequence[NDArray]
        The flat entries of the vector x that is subtracted.
    dtype : np.dtype
        The floating dtype of the arithmetic.
    trim : float
        Fraction left out at each end, in [0, 1/2].
    """

    purpose = "By coordinate, without extreme values: the share --trim at each end, or all but the median."
    helps: ClassVar[tuple[str, ...]] = ("hostile-clients",)
    paper: ClassVar = "yin2018byzantine"

    def __init__(self, reference: Sequence[NDArray], dtype: np.dtype, trim: float) -> None:
        self.reference = reference
        self.dtype = dtype
        self.trim = trim
        self.answers: list[tuple[list[NDArray], float, Sequence[NDArray]]] = []
        self.weights: list[float] = []

    def add(self, summand: Summand) -> None:
        """Add an answer. The paper's means ignore its weight; the entries must not change before `mean`."""
        self.weights.append(summand.weight)
        own = self.reference if summand.reference is None else summand.reference
        self.answers.append(([entry.reshape(-1) for entry in summand.entries], summand.factor, own))

    hold = add

    def merge(self, other: "TrimmedMean") -> None:
        self.answers += other.answers
        self.weights += other.weights

    @property
    def size(self) -> int:
        """Number of entries of a difference."""
        return sum(entry.size for entry in self.reference)

    def mean(self) -> Vector:
        """Return the mean as one flat vector, computed block by block."""
        n = len(self.answers)
        cut = min(max(1, int(self.trim * n + 1e-9)), (n - 1) // 2) if self.trim else 0
        mean = np.empty(self.size, self.dtype)
        for part in blocks(mean.size, PART):
            values = self.sorted_columns(part, range(n))
            np.mean(values[:, cut : n - cut], axis=1, out=mean[part])
        return mean

    def sorted_columns(self, part: slice, chosen: Sequence[int]) -> NDArray:
        """Return the chosen answers' differences in a slice, one sorted row per coordinate."""
        rows = np.empty((len(chosen), part.stop - part.start), self.dtype)
        self.write_differences(part, chosen, rows)
        values = np.empty(rows.shape[::-1], self.dtype)
        for column, row in zip(values.T, rows, strict=True):  # twice as fast as one copy of rows.T
            column[:] = row
        values.sort(axis=1)  # faster than np.partition for so few values
        return values

    def write_differences(self, part: slice, chosen: Iterable[int], rows: NDArray) -> None:
        """Write a slice of the chosen answers' differences, each with its factor, into the first rows."""
        starts = [0, *accumulate(entry.size for entry in self.reference)]
        first, last = bisect_right(starts, part.start) - 1, bisect_left(starts, part.stop)
        pieces = []
        for number in range(first, last):
            start, stop = max(part.start, starts[number]), min(part.stop, starts[number + 1])
            within = slice(start - starts[number], stop - starts[number])
            pieces.append((number, within, slice(start - part.start, stop - part.start)))
        for row, position in zip(rows, chosen, strict=False):
            entries, factor, own = self.answers[position]
            for number, within, place in pieces:
                left, right = entries[number][within], own[number][within]
                np.subtract(left, right, out=row[place], dtype=self.dtype, casting="same_kind")
            if factor != 1:
                np.multiply(row, factor, out=row, dtype=self.dtype, casting="same_kind")

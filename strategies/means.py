"""Means of what clients answered, as partial sums that can be made apart, merged and sent.

The weighted mean; and those that a few lying clients cannot move far: Yin et al. 2018, "Byzantine-Robust
Distributed Learning: Towards Optimal Statistical Rates" (arXiv 1803.01498), Definitions 1 and 2.
"""

from collections.abc import Iterable
from typing import Literal, Protocol, Self, get_args

import numpy as np
from numpy.typing import NDArray

from .vectors import BLOCK, Vector, blocks

MeanKind = Literal["weighted", "median", "trimmed"]
MEANS: tuple[MeanKind, ...] = get_args(MeanKind)


class MeanOfDifferences(Protocol):
    """A mean of clients' differences to a reference, made from partial ones."""

    def add(self, entries: Iterable[NDArray], weight: float, factor: float = 1.0) -> None:
        """Add ``factor`` times the difference of one client's vector, given entry by entry."""

    def merge(self, other: Self) -> None:
        """Add what another one of the same reference holds, after what this one holds."""

    def mean(self) -> Vector:
        """The mean over what was added, one flat vector; asked for once, at the end."""


class WeightedMean:
    """``sum_i w_i (x_i - x) / sum_i w_i``, as a running sum.

    Nothing is kept of a vector once it is added, so that memory does not grow with the number of clients.
    Summing ``x_i - x`` rather than ``x_i`` keeps the rounding error relative to the small difference.

    Parameters
    ----------
    reference : Vector
        What the differences are to, its entries one after the other; sets the dtype.
    """

    def __init__(self, reference: Vector) -> None:
        self.reference = reference
        self.sum = np.zeros_like(reference)
        self.total_weight = 0.0

    def add(self, entries: Iterable[NDArray], weight: float, factor: float = 1.0) -> None:
        dtype = self.sum.dtype
        scale = dtype.type(weight * factor)
        scratch = np.empty(min(BLOCK, self.sum.size), dtype)
        offset = 0
        for entry in entries:
            values = entry.ravel()
            reference, total = (v[offset : offset + values.size] for v in (self.reference, self.sum))
            offset += values.size
            for part in blocks(values.size):
                difference = scratch[: part.stop - part.start]
                np.subtract(values[part], reference[part], out=difference, dtype=dtype)
                difference *= scale
                total[part] += difference
        self.total_weight += weight

    def merge(self, other: "WeightedMean") -> None:
        self.sum += other.sum
        self.total_weight += other.total_weight

    def mean(self) -> Vector:
        self.sum /= self.total_weight
        return self.sum


class TrimmedMean:
    """The coordinate-wise trimmed mean of differences to a reference, each client counting alike.

    Of n values of a coordinate the ``floor(trim n)`` least and as many greatest are left out; where ``trim``
    is positive always one at least, so that an answer that was lost does not switch the trimming off, and
    never all. ``trim = 1/2`` leaves the middle one or two: the coordinate-wise median.

    Every difference is kept until the mean is taken: memory grows with the number of clients.

    Parameters
    ----------
    reference : Vector
        What the differences are to, its entries one after the other; sets the dtype.
    trim : float
        Share left out at each end, in [0, 1/2].
    """

    def __init__(self, reference: Vector, trim: float) -> None:
        self.reference = reference
        self.trim = trim
        self.differences: list[Vector] = []

    def add(self, entries: Iterable[NDArray], weight: float, factor: float = 1.0) -> None:
        """``weight`` is not used, by the paper."""
        difference = np.empty_like(self.reference)
        offset = 0
        for entry in entries:
            part = slice(offset, offset + entry.size)
            np.subtract(entry.ravel(), self.reference[part], out=difference[part], dtype=difference.dtype)
            offset += entry.size
        difference *= difference.dtype.type(factor)
        self.differences.append(difference)

    def merge(self, other: "TrimmedMean") -> None:
        self.differences += other.differences

    def mean(self) -> Vector:
        """Block by block."""
        n = len(self.differences)
        cut = min(max(1, int(self.trim * n + 1e-9)), (n - 1) // 2) if self.trim else 0
        mean = np.empty_like(self.reference)
        for part in blocks(mean.size):
            values = np.stack([difference[part] for difference in self.differences], axis=1)
            values.sort(axis=1)  # faster than a partition, for as many values as there are clients
            np.mean(values[:, cut : n - cut], axis=1, out=mean[part])
        return mean


def new_mean(kind: MeanKind, trim: float, reference: Vector) -> MeanOfDifferences:
    """An empty mean of that kind; ``trim`` is the trimmed mean's."""
    if kind == "weighted":
        return WeightedMean(reference)
    return TrimmedMean(reference, 0.5 if kind == "median" else trim)

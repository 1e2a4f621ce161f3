"""Means that a few lying clients cannot move far, and a bound on how far any client can.

Yin et al. 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates" (arXiv
1803.01498), Definitions 1 and 2; McMahan et al. 2018, "Learning Differentially Private Recurrent Language
Models" (arXiv 1710.06963), FlatClip.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from .vectors import Vector, WeightedMean, blocks

Mean = Literal["weighted", "median", "trimmed"]
MEANS: tuple[Mean, ...] = get_args(Mean)


class MeanOfDifferences(Protocol):
    """A mean of clients' differences to a reference; `vectors.WeightedMean` is one too."""

    def add(self, entries: Iterable[NDArray], weight: float, factor: float = 1.0) -> None:
        """Add ``factor`` times the difference of a client's model, given entry by entry."""

    def mean(self) -> Vector:
        """The mean over what was added, one flat vector; asked for once."""


class TrimmedMean:
    """The coordinate-wise trimmed mean of differences to a reference, each client counting alike.

    Of n values of a coordinate the ``floor(trim n)`` least and as many greatest are left out; where ``trim``
    is positive always one at least, so that an answer that was lost does not switch the trimming off, and
    never all. ``trim = 1/2`` leaves the middle one or two: the coordinate-wise median.

    Every difference is kept until the mean is taken: memory grows with the number of clients.

    Parameters
    ----------
    reference : Vector
        The model that was sent, its entries one after the other; sets the dtype.
    trim : float
        Share left out at each end, in [0, 1/2].
    """

    def __init__(self, reference: Vector, trim: float) -> None:
        self.reference = reference
        self.trim = trim
        self.differences: list[Vector] = []

    def add(self, entries: Iterable[NDArray], weight: float, factor: float = 1.0) -> None:
        """Add ``factor`` times the difference of a client's model; ``weight`` is not used, by the paper."""
        difference = np.empty_like(self.reference)
        offset = 0
        for entry in entries:
            part = slice(offset, offset + entry.size)
            np.subtract(entry.ravel(), self.reference[part], out=difference[part], dtype=difference.dtype)
            offset += entry.size
        difference *= difference.dtype.type(factor)
        self.differences.append(difference)

    def mean(self) -> Vector:
        """The trimmed mean over what was added, taken block by block."""
        n = len(self.differences)
        cut = min(max(1, int(self.trim * n + 1e-9)), (n - 1) // 2) if self.trim else 0
        mean = np.empty_like(self.reference)
        for part in blocks(mean.size):
            values = np.stack([difference[part] for difference in self.differences], axis=1)
            values.sort(axis=1)  # faster than a partition, for as many values as there are clients
            np.mean(values[:, cut : n - cut], axis=1, out=mean[part])
        return mean


def mean_of_differences(kind: Mean, trim: float, reference: Vector) -> MeanOfDifferences:
    """A new mean of that kind; ``trim`` is the trimmed mean's."""
    if kind == "weighted":
        return WeightedMean(reference)
    return TrimmedMean(reference, 0.5 if kind == "median" else trim)


def clipping_factor(
    model: Mapping[str, NDArray], reference: Mapping[str, NDArray], names: Iterable[str], bound: float
) -> float:
    """``min(1, bound / ||x_i - x||)`` over the entries of these names together."""
    squared = 0.0
    for name in names:
        difference = np.subtract(model[name], reference[name], dtype=np.float64).ravel()
        squared += float(difference @ difference)
    return 1.0 if squared <= bound**2 else bound / squared**0.5

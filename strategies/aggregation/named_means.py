"""Means over clients by name: ``median``, ``krum:2``, ``centered-clip:0.5``."""

import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from .means import MeanOfDifferences, TrimmedMean, WeightedMean
from .whole_answers import Bulyan, CenteredClip, GeometricMedian, Krum

MEANS: dict[str, type[WeightedMean | TrimmedMean]] = {
    "weighted": WeightedMean,
    "median": TrimmedMean,
    "trimmed": TrimmedMean,
    "krum": Krum,
    "multi-krum": Krum,
    "bulyan": Bulyan,
    "geometric-median": GeometricMedian,
    "centered-clip": CenteredClip,
}
WEIGHTED = ("weighted", "geometric-median")
"""Means that weight clients by the weights that they report."""
FORM = (
    "one of 'weighted', 'median', 'trimmed', 'krum:F', 'multi-krum:F,M', 'bulyan:F', 'geometric-median', "
    "'centered-clip:TAU', with whole numbers F >= 0 liars and M >= 1 answers, and a number TAU > 0"
)


class NamedMean(NamedTuple):
    """A name of `MEANS` and its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()

    @property
    def least(self) -> int:
        """The least number of answers that it needs."""
        cls = MEANS[self.name]
        return cls.least(*self.arguments) if issubclass(cls, Krum) else 1


def named_mean(text: str) -> NamedMean:
    """Parse the name of a mean, a text of the `FORM`.

    Raises
    ------
    ValueError
        When the text names no mean.
    """
    name, colon, rest = text.partition(":")
    numbers = rest.split(",") if colon else []
    whole = [int(number) for number in numbers if number.isascii() and number.isdigit()]
    match name, len(numbers):
        case (("krum" | "bulyan"), 1) if len(whole) == 1:
            return NamedMean(name, tuple(whole))
        case "multi-krum", 2 if len(whole) == 2 and whole[1] >= 1:
            return NamedMean(name, tuple(whole))
        case "centered-clip", 1 if 0 < (tau := float(rest)) < math.inf:
            return NamedMean(name, (tau,))
        case (("weighted" | "median" | "trimmed" | "geometric-median"), 0):
            return NamedMean(name)
    raise ValueError(f"expected {FORM}")


def _checked(text: str) -> str:
    named_mean(text)
    return text


MeanKind = Annotated[str, AfterValidator(_checked), FORM]


def new_mean(text: str, trim: float, reference: Sequence[NDArray], dtype: np.dtype) -> MeanOfDifferences:
    """Return an empty mean of a kind. ``trim`` is used by the trimmed mean only."""
    name, arguments = named_mean(text)
    if name in ("median", "trimmed"):
        return TrimmedMean(reference, dtype, 0.5 if name == "median" else trim)
    mean: MeanOfDifferences = MEANS[name](reference, dtype, *arguments)
    return mean

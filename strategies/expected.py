"""What an app knows beforehand of the numbers that its clients report."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from flwr.app import MetricRecord

from .messages.validation import ReplyRefused

LARGEST = 3.4028235e38  # of float32, in which a loss is computed
LONGEST_NAME = 100  # characters


@dataclass(frozen=True)
class Range:
    """What a metric may be: a number in [low, high], or, with a ``length``, a list of so many.

    Infinity counts where it is the bound itself; NaN is nowhere in a range.
    """

    low: float = -LARGEST
    high: float = LARGEST
    whole: bool = False
    length: int | None = None

    def holds(self, value: object) -> bool:
        """Whether a value is one of these."""
        if self.length is None:
            return self._holds(value)
        return isinstance(value, list) and len(value) == self.length and all(map(self._holds, value))

    def _holds(self, value: object) -> bool:
        if not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        return not self.whole or value % 1 == 0

    def __str__(self) -> str:
        noun = "whole number" if self.whole else "number"
        bounds = f"in [{self.low:.8g}, {self.high:.8g}]"
        return f"a {noun} {bounds}" if self.length is None else f"{self.length} {noun}s {bounds}"


@dataclass(frozen=True)
class ExpectedMetrics:
    """What an app expects of its clients' metrics, in every phase; without arguments, nothing.

    Parameters
    ----------
    ranges : Mapping[str, Range]
        Of the metrics that it uses, by name.
    taken : Collection[str]
        Names that mean something else to it, and that no metric may have.
    taken_beginnings : tuple[str, ...]
        No metric's name may begin so.
    most : float
        How many further metrics an answer may have.
    longest : float
        How many numbers their lists may hold together.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    taken: Collection[str] = frozenset()
    taken_beginnings: tuple[str, ...] = ()
    most: float = math.inf
    longest: float = math.inf

    def check(self, metrics: MetricRecord) -> None:
        """Check the metrics of one answer.

        Raises
        ------
        ReplyRefused
            For the first that is not as expected, or when there are too many.
        """
        further = [name for name in metrics if name not in self.ranges]
        if len(further) > self.most:
            raise ReplyRefused(f"{len(further)} further metrics, at most {self.most}", "metrics")
        for name in further:
            self._check_name(name)
        numbers = sum(len(value) for name in further if isinstance(value := metrics[name], list))
        if numbers > self.longest:
            raise ReplyRefused(f"{numbers} numbers in lists, at most {self.longest}", "metrics")
        for name, expected in self.ranges.items():
            if name in metrics and not expected.holds(value := metrics[name]):
                found = f"a list of {len(value)}" if isinstance(value, list) else str(value)
                raise ReplyRefused(f"{name!r} is {found}, not {expected}")

    def _check_name(self, name: str) -> None:
        if name in self.taken or name.startswith(self.taken_beginnings):
            raise ReplyRefused(f"a metric is called {name!r}, which means something else here", "metrics")
        if math.isfinite(self.most) and not (name.isprintable() and 0 < len(name) <= LONGEST_NAME):
            told = f"{LONGEST_NAME} characters that can be printed"
            raise ReplyRefused(f"a metric is called {name[:LONGEST_NAME]!r}, not 1 to {told}", "metrics")

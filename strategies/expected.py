"""The metrics that an app expects from its clients, and their ranges."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from flwr.app import MetricRecord

from .messages.validation import ReplyRefused

LARGEST = 3.4028235e38  # the greatest float32: losses are computed in float32
LONGEST_NAME = 100  # characters


@dataclass(frozen=True)
class Range:
    """The allowed values of a metric: a number in [low, high], or a list of ``length`` such numbers.

    Infinity is allowed only if it is a bound; NaN never.
    """

    low: float = -LARGEST
    high: float = LARGEST
    whole: bool = False
    length: int | None = None

    def holds(self, value: object) -> bool:
        """Return whether a value is in the range."""
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
    """What an app expects of its clients' metrics, in both phases. By default anything is allowed.

    Parameters
    ----------
    ranges : Mapping[str, Range]
        Ranges of the metrics that the app uses, by name.
    taken : Collection[str]
        Reserved names: no other metric may have one.
    taken_beginnings : tuple[str, ...]
        Reserved prefixes of names.
    most : float
        Maximum number of further metrics in an answer.
    longest : float
        Maximum total length of their lists.
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
            For the first unexpected metric, or for too many.
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
            raise ReplyRefused(f"the metric name {name!r} is reserved", "metrics")
        if math.isfinite(self.most) and not (name.isprintable() and 0 < len(name) <= LONGEST_NAME):
            shown, allowed = name[:LONGEST_NAME], f"1 to {LONGEST_NAME} printable characters"
            raise ReplyRefused(f"the metric name {shown!r} is not {allowed}", "metrics")

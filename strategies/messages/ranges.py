"""Which numbers a site may send: ranges of metrics and of arrays, declared beside who uses them."""

from dataclasses import dataclass

from numpy.typing import NDArray

LARGEST = 3.4028235e38  # the greatest float32: losses are computed in float32


@dataclass(frozen=True)
class Range:
    """Allowed values: a number in [low, high], a list of ``length`` such numbers, or an array of them.

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

    def spans(self, array: NDArray) -> bool:
        """Return whether every number of an array is in the range; ``whole`` and ``length`` are not of it."""
        return not array.size or bool(self.low <= array.min() and array.max() <= self.high)

    def __str__(self) -> str:
        noun = "whole number" if self.whole else "number"
        bounds = f"in [{self.low:.8g}, {self.high:.8g}]"
        return f"a {noun} {bounds}" if self.length is None else f"{self.length} {noun}s {bounds}"


OF_STATISTICS = {"running_var": Range(0.0), "num_batches_tracked": Range(0.0)}
"""Of BatchNorm's buffers, by the last part of their names: clients take the root of a variance, and divide by
a count. Not where what was sent is beyond the range: then it is something else."""

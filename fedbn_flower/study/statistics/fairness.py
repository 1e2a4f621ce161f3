"""How evenly a metric is spread over clients (Jain's index), and how many of them lose."""

from collections.abc import Sequence
from typing import NamedTuple


class WorseOff(NamedTuple):
    """How many of several clients lose, and how many of them may: an interval for all clients together."""

    clients: int
    worse: int
    least: int
    most: int


def worse_off(gains: Sequence[float], ends: Sequence[tuple[float, float] | None]) -> WorseOff:
    """Count the clients that lose by something.

    Parameters
    ----------
    gains : Sequence[float]
        What each client gains; a negative number is a loss.
    ends : Sequence[tuple[float, float], optional]
        The interval of each gain, None or NaN where there is none. If all hold the true gains at once with
        some probability, as intervals at `bonferroni` do, then so do ``least`` and ``most`` hold the number
        of clients that truly lose: at least those whose interval lies below 0, at most all but those whose
        interval lies above it.
    """
    known = [pair for pair in ends if pair is not None]
    least, gain = sum(high < 0 for _, high in known), sum(low > 0 for low, _ in known)
    return WorseOff(len(gains), sum(value < 0 for value in gains), least, len(gains) - gain)


def bonferroni(level: float, number: int) -> float:
    """Return the level of each of so many intervals at which all hold their values at ``level``."""
    return 1 - (1 - level) / max(1, number)

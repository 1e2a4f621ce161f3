"""The line of progress at the foot of a terminal."""

import time
from typing import TextIO

from .rounds import Rounds

ERASE = "\r\x1b[2K"


class Line:
    """Says in which round an app is, and how many of its clients have answered; only in a terminal.

    What is printed or logged erases it first. No thread draws it.

    Parameters
    ----------
    stream : TextIO
        Where it is written.
    shown : bool
        Whether it is.
    """

    def __init__(self, stream: TextIO, shown: bool) -> None:
        self._stream = stream
        self._shown = shown and stream.isatty()
        self._started = time.monotonic()
        self._drawn = False

    def __call__(self, rounds: Rounds) -> None:
        """Draw the line anew; a watcher of `Rounds`."""
        if self._shown:
            text = described(rounds, time.monotonic() - self._started)
            self._stream.write(f"{ERASE}{text}")
            self._stream.flush()
            self._drawn = True

    def clear(self) -> None:
        """Erase the line."""
        if self._drawn:
            self._stream.write(ERASE)
            self._drawn = False


def described(rounds: Rounds, seconds: float) -> str:
    """Return ``round 2/5  train 7/10  1 failed  12 s``."""
    of = f"/{rounds.last}" if rounds.last else ""
    parts = [f"round {rounds.number}{of}", f"{rounds.kind} {rounds.answered}/{rounds.asked}"]
    if rounds.failures:
        parts.append(f"{rounds.failures} failed")
    return "  ".join([*parts, f"{seconds:.0f} s"])

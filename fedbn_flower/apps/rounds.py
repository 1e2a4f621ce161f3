"""Rounds of any app, as its messages show them, and the line at the foot of a terminal that says so."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TextIO

from flwr.app import Message, MessageType

from ..core.ground import wire


@dataclass
class Rounds:
    """Where an app is.

    Parameters
    ----------
    watchers : list[callable]
        Are called when a phase begins, and after every reply.
    """

    watchers: list[Callable[["Rounds"], None]] = field(default_factory=list)
    number: int = 0
    """Of the round, in the strategy that runs; 0 before the first phase of training."""
    last: int = 0
    """Number of its last round; 0 if it is not known."""
    earlier: int = 0
    """Rounds of the strategies that ran before it."""
    kind: str = ""
    """Of the phase: train, evaluate or query."""
    asked: int = 0
    answered: int = 0
    """Messages of the phase."""
    replies: int = 0
    failures: int = 0
    """Of the whole run."""

    def begin(self, last: int) -> None:
        """A strategy begins, with rounds up to the ``last``."""
        self.earlier, self.number, self.last = self.total, 0, last

    @property
    def total(self) -> int:
        """Rounds so far, of all strategies."""
        return self.earlier + self.number

    @contextmanager
    def phase(self, messages: Sequence[Message]) -> Iterator[Callable[[Message], None]]:
        """A phase begins; the function is told of each reply."""
        if messages:
            self.kind = messages[0].metadata.message_type
            training = self.kind.partition(".")[0] == MessageType.TRAIN
            number = round_named(messages[0]) or self.number + training
            if training and number < self.number:  # a loop of the app's own, which begins anew
                self.earlier += self.number
            self.number = number if training else max(number, self.number)
            self.asked, self.answered = len(messages), 0
            self._tell()
        yield self._on_reply

    def _on_reply(self, reply: Message) -> None:
        self.answered += 1
        self.replies += 1
        self.failures += reply.has_error()
        self._tell()

    def _tell(self) -> None:
        for watcher in self.watchers:
            watcher(self)

    def expected_last(self) -> int:
        """Return the `total` at the end of the strategy that runs.

        As many again as its rounds so far, if the app does not say.
        """
        return self.earlier + (self.last or 2 * self.number)


def round_named(message: Message) -> int:
    """Return the round that a message names: in a ConfigRecord, as strategies do, or as its group.

    0 if it names none.
    """
    for config in message.content.config_records.values():
        number = config.get(wire.SERVER_ROUND)
        if type(number) is int:
            return number
    group = message.metadata.group_id
    return int(group) if group.isdecimal() else 0


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

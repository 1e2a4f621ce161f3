"""A round's messages and answers: how long they were waited for, and what they carried."""

import time
from collections.abc import Callable, Iterable, Iterator

from flwr.app import Message, MessageType, MetricRecord
from flwr.serverapp import Grid

from fedbn_flower.strategies.messages.npy import array_bytes
from fedbn_flower.strategies.messages.wire import METRICS, SENT_BYTES

OnAnswer = Callable[[str, int, int], None]
"""Told the phase, how many answers came, and how many were asked for."""


class Exchange:
    """Sends the messages of one round and takes the answers, and keeps account of both.

    Parameters
    ----------
    grid : Grid
        Carries them.
    timeout : float
        Seconds to wait for a phase's answers.
    summed : bool
        Whether answers say themselves what they would carry: a simulation's own processes have summed them.

    Attributes
    ----------
    seconds : dict[str, float]
        Waited for answers, by phase (``train``, ``evaluate``).
    bytes_sent, bytes_received : int
        Of all arrays that went out, once for each client they went to, and that came back, as a deployment
        would carry them: what a simulation sums where it was trained counts as if each answer came.
    """

    def __init__(self, grid: Grid, timeout: float, summed: bool = False) -> None:
        self.grid = grid
        self.timeout = timeout
        self.summed = summed
        self.seconds = {MessageType.TRAIN: 0.0, MessageType.EVALUATE: 0.0}
        self.bytes_sent = 0
        self.bytes_received = 0

    def answers(
        self, phase: str, messages: Iterable[Message], on_answer: OnAnswer = lambda *_: None
    ) -> Iterator[Message]:
        """Send a phase's messages; the answers as they come."""
        asked = list(messages)
        sizes: dict[int, int] = {}
        for message in asked:
            content = message.content
            if id(content) not in sizes:
                sizes[id(content)] = array_bytes(content)
            self.bytes_sent += sizes[id(content)]
        began = time.monotonic()
        replies = iter(self.grid.send_and_receive(asked, timeout=self.timeout))
        self.seconds[phase] += time.monotonic() - began

        def taken() -> Iterator[Message]:
            done = 0
            while True:
                began = time.monotonic()
                reply = next(replies, None)
                self.seconds[phase] += time.monotonic() - began
                if reply is None:
                    return
                done += 1
                self.bytes_received += self._received(reply)
                on_answer(phase, done, len(asked))
                yield reply

        return taken()

    def _received(self, reply: Message) -> int:
        """What an answer's arrays take; what a simulation says of those it summed is taken out of the
        metrics."""
        if not reply.has_content():
            return 0
        metrics = reply.content.get(METRICS)
        if (
            self.summed
            and isinstance(metrics, MetricRecord)
            and isinstance(told := metrics.get(SENT_BYTES), int)
        ):
            del metrics[SENT_BYTES]
            return told
        return array_bytes(reply.content)

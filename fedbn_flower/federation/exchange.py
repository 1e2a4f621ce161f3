"""Send a round's messages and receive the replies, counting seconds and bytes."""

import time
from collections.abc import Callable, Iterable, Iterator

from flwr.app import Message, MessageType, MetricRecord
from flwr.serverapp import Grid

from fedbn_flower.strategies.messages.npy import array_bytes
from fedbn_flower.strategies.messages.wire import METRICS, SENT_BYTES

OnAnswer = Callable[[str, int, int], None]
"""Called with the phase, the number of replies so far, and the number of messages."""


class Exchange:
    """Sends the messages of one round and receives the replies.

    Parameters
    ----------
    grid : Grid
        Carries the messages.
    timeout : float
        Seconds to wait for the replies of a phase.
    summed : bool
        Whether models are summed where they were trained. Replies then say how many bytes each model has.

    Attributes
    ----------
    seconds : dict[str, float]
        Seconds spent waiting for replies, by phase (``train``, ``evaluate``).
    bytes_sent, bytes_received : int
        Bytes of all arrays, counted once for each client, as a deployment would carry them. Models that a
        simulation sums where they were trained count one by one.
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
        """Send a phase's messages; yield the replies as they arrive."""
        sent = list(messages)
        sizes: dict[int, int] = {}
        for message in sent:
            content = message.content
            if id(content) not in sizes:
                sizes[id(content)] = array_bytes(content)
            self.bytes_sent += sizes[id(content)]
        began = time.monotonic()
        replies = iter(self.grid.send_and_receive(sent, timeout=self.timeout))
        self.seconds[phase] += time.monotonic() - began

        def arriving() -> Iterator[Message]:
            done = 0
            while True:
                began = time.monotonic()
                reply = next(replies, None)
                self.seconds[phase] += time.monotonic() - began
                if reply is None:
                    return
                done += 1
                self.bytes_received += self._received(reply)
                on_answer(phase, done, len(sent))
                yield reply

        return arriving()

    def _received(self, reply: Message) -> int:
        """Return the bytes of a reply's arrays, also of those that were summed elsewhere."""
        if not reply.has_content():
            return 0
        metrics = reply.content.get(METRICS)
        if (
            self.summed
            and isinstance(metrics, MetricRecord)
            and isinstance(sent := metrics.get(SENT_BYTES), int)
        ):
            del metrics[SENT_BYTES]
            return sent
        return array_bytes(reply.content)

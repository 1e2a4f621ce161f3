"""Send a round's messages and receive the replies, counting seconds and bytes."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from flwr.app import ArrayRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid

from fedbn_flower.strategies.messages.npy import array_bytes

from ..core.ground.wire import CASES, METRICS, SENT_BYTES
from ..extensions.base import Carry, Configure, OnAnswer
from .one_exchange import JointEvaluation


class Waits(NamedTuple):
    """Seconds between two polls for replies: ``shortest`` after a poll that found some, then growing by a
    quarter up to ``longest``. So polling delays a reply by at most about a quarter of the time it took."""

    shortest: float
    longest: float

    def after(self, wait: float) -> float:
        """Return the next wait after a poll that found nothing."""
        return min(1.25 * wait, self.longest)


OVER_THE_NETWORK = Waits(0.1, 3.0)
"""A poll is a request to the SuperLink; Flower's own wait is 3."""
IN_THIS_PROCESS = Waits(0.02, 0.1)
"""A poll costs nothing where Flower simulates nodes; Flower's own wait is 0.1."""


@runtime_checkable
class HasWaits(Protocol):
    """A Grid that says how often to poll for its replies."""

    @property
    def waits(self) -> Waits:
        """Seconds between two polls."""


def waits_of(grid: Grid) -> Waits:
    """Return the seconds between two polls for replies to messages sent by `Exchange.push`."""
    return grid.waits if isinstance(grid, HasWaits) else OVER_THE_NETWORK


@runtime_checkable
class Simulates(Protocol):
    """A Grid with simulated clients, whose memories this program holds."""

    def client_memory(self, partition_id: int) -> Any:
        """Return a client's memory."""


class Exchange:
    """Sends the messages of one round and receives the replies.

    Parameters
    ----------
    grid : Grid
        Carries the messages.
    timeout : float
        Seconds to wait for the replies of a phase.
    summed : bool
        Whether models are summed in the workers that trained them. Replies then report each model's bytes.
    on_answer : callable
        Called with the replies of a phase as they arrive.
    joint : JointEvaluation, optional
        An evaluation that goes with the train messages.

    Attributes
    ----------
    read : callable
        Decodes a reply to a train message; called with the reply and that message.
    carry : callable
        Sends a phase's messages and returns their replies; the grid's own method by default.
    train : callable
        Returns the answers to the round's train messages, given the server's model and the round's
        configuration; by default it sends these messages.
    seconds : dict[str, float]
        Seconds spent waiting for replies, by phase (``train``, ``evaluate``).
    bytes_sent, bytes_received : int
        Bytes of all arrays, counted for each client, as in a deployment. Models that a worker has summed
        count one by one; held-out cases do not count.
    cases : dict[int, ArrayRecord]
        The held-out cases of simulated clients, by node id. Sites send none; any that arrive from elsewhere
        are dropped unread.
    """

    def __init__(
        self,
        grid: Grid,
        timeout: float,
        summed: bool = False,
        on_answer: OnAnswer = lambda *_: None,
        joint: JointEvaluation | None = None,
    ) -> None:
        self.grid = grid
        self.timeout = timeout
        self.summed = summed
        self.on_answer = on_answer
        self.joint = joint
        self.read: Callable[[Message, Message], Message] = lambda reply, asked: reply
        self.carry: Carry = self._carried
        self.train: Callable[[ArrayRecord, Configure], Iterable[Message]] = self._trained
        self.seconds = {MessageType.TRAIN: 0.0, MessageType.EVALUATE: 0.0}
        self.bytes_sent = 0
        self.bytes_received = 0
        self.cases: dict[int, ArrayRecord] = {}

    def answers(self, phase: str, messages: Iterable[Message], counted: bool = True) -> Iterator[Message]:
        """Send a phase's messages; yield the replies as they arrive.

        ``counted``: whether `on_answer` is called with them.
        """
        sent, joint = list(messages), self.joint if phase == MessageType.TRAIN else None
        if joint:
            sent = joint.joined(sent)
        self._count(sent)
        began = time.monotonic()
        replies = iter(self.carry(phase, sent))
        self.seconds[phase] += time.monotonic() - began

        def arriving() -> Iterator[Message]:
            done, asked = 0, dict[str, Message]()
            while True:
                began = time.monotonic()
                reply = next(replies, None)
                self.seconds[phase] += time.monotonic() - began
                if reply is None:
                    return
                done += 1
                if phase == MessageType.TRAIN and not asked:
                    asked = {message.metadata.message_id: message for message in sent}
                answer: Message | None = reply
                if joint:
                    evaluated, answer = joint.parts(reply)
                    joint.answers += [self.received(evaluated, None)] if evaluated else []
                if answer:
                    answer = self.received(answer, asked.get(answer.metadata.reply_to_message_id))
                if counted:
                    self.on_answer(phase, done, len(sent))
                if answer:
                    yield answer

        return arriving()

    def _carried(self, phase: str, messages: list[Message]) -> Iterable[Message]:
        return self.grid.send_and_receive(messages, timeout=self.timeout)

    def _trained(self, model: ArrayRecord, configure: Configure) -> Iterable[Message]:
        return self.answers(MessageType.TRAIN, configure())

    def push(self, messages: Sequence[Message]) -> None:
        """Send messages without waiting; the caller polls for the answers and passes each to `received`."""
        self._count(messages)
        self.grid.push_messages(messages)

    def received(self, reply: Message, asked: Message | None) -> Message:
        """Count a reply; return it, decoded if it answers the train message ``asked``."""
        self._take_cases(reply)
        self.bytes_received += self._bytes_of(reply)
        return self.read(reply, asked) if asked else reply

    def _take_cases(self, reply: Message) -> None:
        """Take the held-out cases out of a reply."""
        cases = reply.content.pop(CASES, None) if reply.has_content() else None
        if isinstance(cases, ArrayRecord) and isinstance(self.grid, Simulates):
            self.cases[reply.metadata.src_node_id] = cases

    def _count(self, messages: Iterable[Message]) -> None:
        sizes: dict[int, int] = {}
        for message in messages:
            content = message.content
            if id(content) not in sizes:
                sizes[id(content)] = array_bytes(content)
            self.bytes_sent += sizes[id(content)]

    def _bytes_of(self, reply: Message) -> int:
        """Return the bytes of a reply's arrays, including those already summed in a worker."""
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

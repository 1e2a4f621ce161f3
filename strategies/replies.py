"""The answers to a phase's messages: whose they are, in which order they are used, why one was not."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from flwr.app import Message, MetricRecord, RecordDict

from .checks import LOGGER, ReplyRefused
from .nodes import NodeDirectory

Answer = TypeVar("Answer")

MAX_REASON = 500  # characters of a reason that are kept: a liar may send megabytes of names


@dataclass
class PhaseReport:
    """What came back in the last train or evaluate phase."""

    metrics: dict[int, MetricRecord] = field(default_factory=dict)
    """By partition id (node id where unknown), in partition order."""
    failures: dict[int, str] = field(default_factory=dict)
    """Why an answer was not used, by partition id; a second answer stands here beside the first's metrics."""


class Replies:
    """Gives the answers of a phase in partition order, and keeps the report of it.

    Parameters
    ----------
    nodes : NodeDirectory
        Knows the nodes' partitions.
    """

    def __init__(self, nodes: NodeDirectory) -> None:
        self.nodes = nodes
        self.report = PhaseReport()
        self.sent: list[Message] = []
        self.phase = ""
        self._logged: set[tuple[int, str]] = set()

    def expect(self, phase: str, sent: list[Message]) -> None:
        """A phase begins: its name for the log, and its messages."""
        self.report, self.phase, self.sent = PhaseReport(), phase, sent

    def usable(
        self, replies: Iterable[Message], read: Callable[[RecordDict], Answer]
    ) -> Iterator[tuple[int, Answer]]:
        """What ``read`` makes of each reply, with its partition id, in partition order.

        A reply that is an error, empty, or for which ``read`` raises `ReplyRefused`, is dropped.
        """
        for partition, reply in self._in_partition_order(replies):
            try:
                yield partition, read(_content(reply))
            except ReplyRefused as refusal:
                self._drop(partition, str(refusal))

    def _in_partition_order(self, replies: Iterable[Message]) -> Iterator[tuple[int, Message]]:
        """The replies with their partition ids, each as soon as those before it were there.

        An error may come from Flower itself (node id 1), so a reply is known by the message it answers,
        not by its sender. One that answers no message of this phase, or one that was answered already, is
        dropped; what never came is reported as a failure.
        """
        positions = {sent.metadata.message_id: i for i, sent in enumerate(self.sent)}
        unanswered = set(positions.values())
        targets = [self.nodes.partition(sent.metadata.dst_node_id) for sent in self.sent]
        waiting: dict[int, Message] = {}
        due = 0
        for reply in replies:
            position = positions.get(reply.metadata.reply_to_message_id)
            if position is None:
                stranger = self.nodes.partition(reply.metadata.src_node_id)
                self._drop(stranger, "answers no message of this phase")
            elif position not in unanswered:
                self._drop(targets[position], "a second answer to the same message")
            else:
                unanswered.remove(position)
                waiting[position] = reply
                while due in waiting:
                    yield targets[due], waiting.pop(due)
                    due += 1
        for position in sorted(waiting):
            yield targets[position], waiting[position]
        for position in sorted(unanswered):
            self._drop(targets[position], "no answer in time")

    def _drop(self, partition: int, reason: str) -> None:
        """Count an answer as failed; each reason is logged once."""
        reason = " ".join(reason[:MAX_REASON].split())
        self.report.failures.setdefault(partition, reason)
        if (partition, reason) not in self._logged:
            self._logged.add((partition, reason))
            LOGGER.warning("%s: partition %d dropped: %s", self.phase, partition, reason)

    def too_few(self, usable: int, min_replies: int) -> None:
        """Say that the phase has no result, if it asked anything."""
        if self.sent:
            counts = (self.phase, usable, len(self.sent), min_replies)
            LOGGER.warning("%s: %d of %d answers can be used, min_replies is %d: the model stays", *counts)


def _content(reply: Message) -> RecordDict:
    if reply.has_error():
        raise ReplyRefused(reply.error.reason or f"error code {reply.error.code}")
    if not reply.has_content():
        raise ReplyRefused("empty message")
    return reply.content

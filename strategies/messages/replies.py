"""The answers to a phase's messages: whose they are, in which order they are used, why one was not."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeVar

from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies

from .nodes import NodeDirectory
from .validation import LOGGER, ReplyRefused

T = TypeVar("T")

NO_ANSWER = "no answer came, or the app left it out"
ERROR = "error"  # no disagreement: the client said itself that it failed
TOO_FEW = "too few answers"
MESSAGE = "Exception ClientAppException occurred. Message: "
MAX_REASONS = 1000  # different ones that are counted
ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours, the cursor
    r"|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links
    r"|\x1b[ -/]*[0-~]?"
)
MAX_REASON = 500  # characters of a reason that are kept: a liar may send megabytes of names


@dataclass
class PhaseReport:
    """What came back in the last train or evaluate phase."""

    metrics: dict[int, MetricRecord] = field(default_factory=dict)
    """By partition id (node id where unknown), in the order in which the answers were used."""
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
        self._sent: list[Message] = []
        self._phase = self._title = ""
        self._proven: set[str] = set()  # phases in which an answer was usable once
        self._times: Counter[str] = Counter()  # that a reason was told, or was not because it had been

    def expect(self, phase: str, server_round: int, sent: list[Message]) -> None:
        """A phase (``train``, ``evaluate``) begins with these messages; others may be sent in their stead."""
        self.report, self._phase, self._sent = PhaseReport(), phase, sent
        self._title = f"round {server_round}, {phase}"

    def count(self, phase: str) -> int:
        """How many messages the current phase sent, if it is this one."""
        return len(self._sent) if phase == self._phase else 0

    def usable(
        self, phase: str, server_round: int, replies: Iterable[Message], read: Callable[[RecordDict], T]
    ) -> Iterator[tuple[int, int, T]]:
        """(place, partition, what ``read`` makes of it) of each reply, in the messages' order.

        A reply that is an error, empty, or for which ``read`` raises `ReplyRefused`, is dropped. Those
        that answer none of the messages expected come last, by node: a subclass has sent its own.

        Raises
        ------
        InconsistentMessageReplies
            When every answer disagrees with what was expected in the same way, and none of this phase was
            ever usable: a mistake in one of the apps, not one client's trouble. A single answer says so only
            where there is a single node: it may be a liar's.
        """
        if phase != self._phase:
            self.expect(phase, server_round, [])
        refused: list[ReplyRefused] = []
        received, errors = 0, 0
        for place, node, reply in self._in_order(replies):
            try:
                content = _content(reply)
                received += 1
                answer = read(content)
            except ReplyRefused as refusal:
                errors += refusal.kind == ERROR
                refused.append(refusal)
                self._drop(node, str(refusal))
            else:
                self._proven.add(phase)
                partition = self.nodes.partition(node)
                if self.report.failures.get(partition) == NO_ANSWER:  # the replies are given in several parts
                    del self.report.failures[partition]
                yield place, partition, answer
        if received or errors:
            LOGGER.info("aggregate_%s: Received %d results and %d failures", phase, received, errors)
        kinds = {refusal.kind for refusal in refused}
        telling = received > 1 or (received == 1 and self.nodes.count <= 1)
        if telling and phase not in self._proven and len(kinds) == 1 and kinds.isdisjoint({"", ERROR}):
            reason = printable(str(refused[0]))
            raise InconsistentMessageReplies(
                f"{phase}: all {received} answers are refused for the same reason: {reason}"
            )

    def _in_order(self, replies: Iterable[Message]) -> Iterator[tuple[int, int, Message]]:
        """(place, node, reply) of the replies, each as soon as those before it were there.

        An error may come from Flower itself (node id 1), so a reply is known by the message it answers,
        not by its sender. One to a message that was answered already is dropped; what was sent and never
        answered is reported as a failure, unless the replies are all to other messages.
        """
        # A message has an id once it is sent: with the first reply at the latest, where replies are a
        # generator that sends; and a subclass may have sent only some, or others.
        arriving = iter(replies)
        first = list(islice(arriving, 1))
        ids = {message.metadata.message_id: place for place, message in enumerate(self._sent)}
        places = {message_id: place for message_id, place in ids.items() if message_id}
        targets = [sent.metadata.dst_node_id for sent in self._sent]
        unanswered = set(places.values())
        waiting: dict[int, Message] = {}
        others: list[Message] = []
        due = 0
        for reply in chain(first, arriving):
            place = places.get(reply.metadata.reply_to_message_id)
            if place is None:
                others.append(reply)
            elif place not in unanswered:
                self._drop(targets[place], "a second answer to the same message")
            else:
                unanswered.remove(place)
                waiting[place] = reply
                while due in waiting:
                    yield due, targets[due], waiting.pop(due)
                    due += 1
        for place in sorted(waiting):
            yield place, targets[place], waiting[place]
        if len(unanswered) < len(places) or not others:
            for place in sorted(unanswered):
                if self.nodes.partition(targets[place]) not in self.report.metrics:
                    self._drop(targets[place], NO_ANSWER)
        senders = [reply.metadata.src_node_id for reply in others]
        if all(isinstance(node, int) for node in senders):
            pairs = sorted(zip(senders, others, strict=True), key=lambda pair: self.nodes.rank(pair[0]))
        else:  # made by hand, in a test
            pairs = list(enumerate(others))
        for place, (node, reply) in enumerate(pairs, start=len(self._sent)):
            yield place, node, reply

    def _drop(self, node: int, reason: str) -> None:
        """Count an answer as failed, and say so."""
        reason = printable(reason)
        self.report.failures.setdefault(self.nodes.partition(node), reason)
        self._tell(reason, f"{self._title}: {self.nodes.name(node)} dropped: {reason}")

    def too_few(self, usable: int, min_replies: int) -> None:
        """Say that the phase has no result, if it asked anything."""
        if self._sent:
            told = f"{usable} of {len(self._sent)} answers can be used, min_replies is {min_replies}"
            self._tell(TOO_FEW, f"{self._title}: {told}: the model stays")

    def _tell(self, what: str, line: str) -> None:
        """Warn the 1st, 10th, 100th, ... time: what every round repeats would hide everything else."""
        if len(self._times) >= MAX_REASONS and what not in self._times:
            self._times.clear()
        self._times[what] += 1
        times = self._times[what]
        if set(str(times)[1:]) <= {"0"} and str(times)[0] == "1":
            LOGGER.warning("%s%s", line, f" (for the {times}th time)" if times > 1 else "")


def printable(reason: str) -> str:
    """What a client gives as a reason, fit for a terminal: one line of a bounded length, without escape
    sequences and the characters that control one."""
    plain = ESCAPES.sub("", reason[:MAX_REASON])
    return " ".join("".join(c if c.isprintable() else " " for c in plain).split())


def cause(reason: str) -> str:
    """What went wrong, of a reason that is a traceback: Flower's Ray workers begin it with their process and
    address, others in every run, and have the message at the end."""
    end = reason[-4 * MAX_REASON :]
    message = end.rpartition(MESSAGE)[2] if MESSAGE in end else ""
    if not message and '", line ' in reason and "\n" in reason:
        message = next((line for line in reversed(end.splitlines()) if line.strip(" '>")), "")
    return message.strip().removesuffix("'>").strip() or reason


def _content(reply: Message) -> RecordDict:
    if reply.has_error():
        raise ReplyRefused(cause(reply.error.reason or "") or f"error code {reply.error.code}", ERROR)
    if not reply.has_content():
        raise ReplyRefused("empty message", ERROR)
    return reply.content

"""Match the replies of a phase to its messages, order them, and record why one was not used."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeVar

from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from numpy.typing import NDArray

from .early import EarlyAnswers
from .gate import ERROR, ReplyRefused, content_of, printable
from .nodes import NodeDirectory
from .validation import LOGGER

T = TypeVar("T")

NO_ANSWER = "no answer came, or the app left it out"
TOO_FEW = "too few answers"
MAX_REASONS = 1000  # distinct reasons that are counted
MAX_NAMED = 10  # nodes of which the first refusal for a reason is logged


@dataclass
class PhaseReport:
    """The metrics and failures of the last train or evaluate phase."""

    metrics: dict[int, MetricRecord] = field(default_factory=dict)
    """Metrics by partition id (node id if that is unknown), in the order in which the answers were used."""
    failures: dict[int, str] = field(default_factory=dict)
    """Reason why an answer was not used, by partition id. A client that answered twice is in both, and
    one that trained but did not answer a question before."""
    states: dict[int, Mapping[str, NDArray]] = field(default_factory=dict)
    """States of the further metrics by partition id, of the answers that have any."""
    pooled: dict[str, float] = field(default_factory=dict)
    """Metrics of all clients' cases in one place, where these are known one by one."""
    cases: Mapping[int, Mapping[str, NDArray]] = field(default_factory=dict)
    """What simulated clients predicted of each held-out case, by partition id; see `cases.Cases`."""
    models: dict[int, str] = field(default_factory=dict)
    """Of a rule that keeps several models, the name of the one trained or evaluated, by partition id."""

    def numbers(self, name: str) -> dict[int, float]:
        """Return a scalar metric by partition id, of the answers that have it."""
        found = {partition: metrics.get(name) for partition, metrics in self.metrics.items()}
        return {partition: float(v) for partition, v in found.items() if isinstance(v, int | float)}


@dataclass
class _Phase:
    """A phase that has begun: its messages, and what has become of the answers."""

    name: str
    server_round: int
    sent: list[Message]
    report: PhaseReport = field(default_factory=PhaseReport)

    @property
    def title(self) -> str:
        return f"round {self.server_round}, {self.name}"


class Replies:
    """Yield the answers of a phase in partition order, and keep its report.

    Parameters
    ----------
    nodes : NodeDirectory
        The nodes and their partitions.
    """

    def __init__(self, nodes: NodeDirectory) -> None:
        self.nodes = nodes
        self._current = _Phase("", 0, [])
        self._begun: dict[str, _Phase] = {}  # the last of each name: one may be pending while another is read
        self._proven: set[str] = set()  # phases that have had a usable answer
        self._times: Counter[str] = Counter()  # occurrences of each reason, logged or not
        self._named: dict[str, set[str]] = {}  # nodes that were logged with each reason

    def expect(self, phase: str, server_round: int, sent: list[Message]) -> None:
        """Begin a phase (``train``, ``evaluate``) with these messages. A subclass may send others instead."""
        self._current = self._begun[phase] = _Phase(phase, server_round, sent)

    @property
    def report(self) -> PhaseReport:
        """The report of the phase that began or was read last."""
        return self._current.report

    def partitions(self) -> list[int]:
        """Return the partitions of the phase's recipients."""
        return [self.nodes.partition(message.metadata.dst_node_id) for message in self._current.sent]

    def count(self, phase: str) -> int:
        """Return the number of messages of a phase if it is the current one, else 0."""
        return len(self._current.sent) if phase == self._current.name else 0

    def usable(
        self, phase: str, server_round: int, replies: Iterable[Message], read: Callable[[RecordDict], T]
    ) -> Iterator[tuple[int, int, T]]:
        """Yield (position, partition, result of ``read``) of each usable reply, in the order of the messages.

        A reply is dropped if it is an error, empty, or if ``read`` raises `ReplyRefused`. Replies to other
        messages, which a subclass has sent, come last, by node.

        Raises
        ------
        InconsistentMessageReplies
            When every answer is refused for the same kind of disagreement, and no answer of this phase was
            ever usable: a mistake in one of the apps. A single answer counts only if there is a single
            node, since it may come from a malicious client.
        """
        if phase != self._current.name:
            waiting = self._begun.get(phase)
            if waiting and waiting.server_round == server_round:
                self._current = waiting
            else:
                self.expect(phase, server_round, [])
        refused: list[ReplyRefused] = []
        received, errors = 0, 0
        for position, node, reply in self._in_order(replies):
            try:
                content = content_of(reply)
                received += 1
                answer = read(content)
            except ReplyRefused as refusal:
                errors += refusal.kind == ERROR
                refused.append(refusal)
                self._drop(node, str(refusal))
            else:
                self._proven.add(phase)
                partition = self.nodes.partition(node)
                if self.report.failures.get(partition) == NO_ANSWER:  # replies are given in several calls
                    del self.report.failures[partition]
                yield position, partition, answer
        if received or errors:
            LOGGER.info("aggregate_%s: Received %d results and %d failures", phase, received, errors)
        kinds = {refusal.kind for refusal in refused}
        conclusive = received > 1 or (received == 1 and self.nodes.count <= 1)
        if conclusive and phase not in self._proven and len(kinds) == 1 and kinds.isdisjoint({"", ERROR}):
            reason = printable(str(refused[0]))
            raise InconsistentMessageReplies(
                f"{phase}: all {received} answers are refused for the same reason: {reason}"
            )

    def _in_order(self, replies: Iterable[Message]) -> Iterator[tuple[int, int, Message]]:
        """Yield (position, node, reply) of the replies, each as soon as all before it have arrived.

        Replies that arrive before their turn wait in `EarlyAnswers`.

        An error may come from Flower itself (node id 1), so replies are identified by the message they
        answer, not by their sender. A second reply to a message is dropped. A message without a reply is
        reported as a failure, unless all replies are to other messages.
        """
        # Messages get their ids when sent. If ``replies`` is a generator that sends, that is when it yields
        # the first reply. A subclass may have sent only some of the messages, or others.
        arriving = iter(replies)
        first = iter(list(islice(arriving, 1)))  # a list iterator drops its item when advanced
        ids = {message.metadata.message_id: position for position, message in enumerate(self._current.sent)}
        positions = {message_id: position for message_id, position in ids.items() if message_id}
        targets = [sent.metadata.dst_node_id for sent in self._current.sent]
        unanswered = set(positions.values())
        early = EarlyAnswers()
        others: list[Message] = []
        due = 0
        for reply in chain(first, arriving):
            position = positions.get(reply.metadata.reply_to_message_id)
            if position is None:
                others.append(reply)
            elif position not in unanswered:
                self._drop(targets[position], "a second answer to the same message")
            elif position != due:
                unanswered.remove(position)
                early.put(position, reply)
            else:
                unanswered.remove(position)
                yield due, targets[due], reply
                due += 1
                while due in early:
                    yield due, targets[due], early.take(due)
                    due += 1
        for position in early:
            yield position, targets[position], early.take(position)
        if len(unanswered) < len(positions) or not others:
            for position in sorted(unanswered):
                if self.nodes.partition(targets[position]) not in self.report.metrics:
                    self._drop(targets[position], NO_ANSWER)
        others.sort(key=lambda reply: self.nodes.rank(reply.metadata.src_node_id))
        for position, reply in enumerate(others, start=len(self._current.sent)):
            yield position, reply.metadata.src_node_id, reply

    def _drop(self, node: int, reason: str) -> None:
        """Record an answer as failed, and log it."""
        reason = printable(reason)
        self.report.failures.setdefault(self.nodes.partition(node), reason)
        name = self.nodes.name(node)
        self._warn(reason, f"{self._current.title}: {name} dropped: {reason}", name)

    def too_few(self, usable: int, wanted: str) -> None:
        """Log that the phase has no result, if it sent any message."""
        if self._current.sent:
            found = f"{usable} of {len(self._current.sent)} answers are usable, {wanted}"
            self._warn(TOO_FEW, f"{self._current.title}: {found}: the model is unchanged")

    def _warn(self, reason: str, line: str, name: str = "") -> None:
        """Log a warning the 1st, 10th, 100th, ... time that a reason occurs, to keep the log readable.

        The first occurrence of each of the first ten nodes is logged, too.
        """
        if len(self._times) >= MAX_REASONS and reason not in self._times:
            self._times.clear()
            self._named.clear()
        self._times[reason] += 1
        times, named = str(self._times[reason]), self._named.setdefault(reason, set())
        is_new = name not in named and len(named) < MAX_NAMED
        if is_new:
            named.add(name)
        if times.strip("0") == "1":
            line += f" (for the {times}th time)" if times != "1" else ""
        elif not is_new:
            return
        LOGGER.warning("%s", line)

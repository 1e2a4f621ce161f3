"""Match the replies of a phase to its messages, order them, and record why one was not used.

Those that arrive before their turn are kept: a few in memory, the arrays of others in a file.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import IO, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from numpy.typing import NDArray

from .gate import ERROR, ReplyRefused, content_of, printable
from .nodes import NodeDirectory
from .npy import array_bytes
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


IN_MEMORY = 2**28
"""Bytes of arrays that wait for their turn in memory."""


class EarlyAnswers:
    """Keeps the answers of a phase until their turn.

    The file is unnamed, in the temporary folder (``TMPDIR``), and is removed with this object. If it cannot
    be written, answers stay in memory, with a warning. Answers are not left at the SuperLink until their
    turn, because Flower replaces the answer of a node that goes offline by an error.

    Parameters
    ----------
    in_memory : int
        The most bytes of arrays in memory; an answer that would exceed it is written to the file.

    Attributes
    ----------
    bytes_held : int
        The bytes of the arrays in memory.
    """

    def __init__(self, in_memory: float = IN_MEMORY) -> None:
        self.bytes_held = 0
        self._in_memory = in_memory
        self._replies: dict[int, Message] = {}
        self._sizes: dict[int, int] = {}  # of those in memory
        self._places: dict[int, list[tuple[int, int]]] = {}  # where each array lies: offset and length
        self._file: IO[bytes] | None = None
        self._end = 0

    def __contains__(self, position: int) -> bool:
        return position in self._replies

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._replies))

    def put(self, position: int, reply: Message) -> None:
        """Keep the answer to the message at this position."""
        self._replies[position] = reply
        size = array_bytes(reply.content) if reply.has_content() else 0
        if self.bytes_held + size > self._in_memory:
            try:
                self._write(position, reply)
            except OSError as error:
                self._in_memory = float("inf")
                LOGGER.warning("answers before their turn stay in memory: no temporary file (%s)", error)
            else:
                return
        self._sizes[position] = size
        self.bytes_held += size

    def take(self, position: int) -> Message:
        """Return an answer and forget it."""
        reply = self._replies.pop(position)
        self.bytes_held -= self._sizes.pop(position, 0)
        if position in self._places:
            places = self._places.pop(position)
            reply.content = _with_data(reply.content, (self._read(*place) for place in places))
        return reply

    def _write(self, position: int, reply: Message) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        places, end = [], self._end
        for record in reply.content.values():  # array_records would make a cycle, which keeps the arrays
            for array in record.values() if isinstance(record, ArrayRecord) else ():
                places.append((end, len(array.data)))
                end += _written(self._file, places[-1][0], array.data)
        reply.content = _with_data(reply.content, repeat(b""))  # others may hold the arrays themselves
        self._places[position], self._end = places, end

    def _read(self, offset: int, length: int) -> bytes:
        assert self._file
        self._file.seek(offset)
        return np.fromfile(self._file, np.uint8, length).tobytes()


def _written(file: IO[bytes], offset: int, data: bytes) -> int:
    """Write the data to an unbuffered file, which may take less at a time; return their length."""
    file.seek(offset)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
    return len(data)


def _with_data(content: RecordDict, parts: Iterable[bytes]) -> RecordDict:
    """Return the records with other data in their arrays, in order; an array may be in several places."""
    data = iter(parts)
    return RecordDict(
        {
            name: ArrayRecord({k: Array(a.dtype, a.shape, a.stype, next(data)) for k, a in record.items()})
            if isinstance(record, ArrayRecord)
            else record
            for name, record in content.items()
        }
    )

"""What an app sees of a grid: Flower's Grid, with its checks and its lists of replies."""

import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import RLock, current_thread
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from ..core.private import (
    NodeInfo,
    Run,
    message_errors,
    online_node,
    set_message_id,
    unavailable,
    with_content,
)
from ..runtime.grid import LocalGrid
from .callers import Caller
from .clients import copied
from .rounds import Rounds

LOGGER = logging.getLogger("flwr.fedbn")


class AppGrid(Grid):
    """A local grid for any ServerApp.

    Replies come in the order of their messages, in a list. A message that Flower would refuse is logged and
    not sent. Clients work on what was pushed when replies are pulled, before the next messages are sent, and
    at the end of the run.

    Parameters
    ----------
    grid : LocalGrid
        Where clients run.
    run : Run
        What the app reads of its run.
    rounds : Rounds
        Is told of messages and replies.
    """

    def __init__(self, grid: LocalGrid, run: Run, rounds: Rounds) -> None:
        self._grid = grid
        self._run = run
        self._rounds = rounds
        self._pushed: dict[str, Message] = {}
        self._answered: dict[str, tuple[Message, Message]] = {}
        self._lock = RLock()  # an app may have threads

    def set_run(self, run: Run) -> None:
        raise RuntimeError("a simulated app has one run, which is set")

    @property
    def run(self) -> Run:
        return Run(**vars(self._run))

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        return NodeIds(self._grid.get_node_ids())

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [online_node(node_id) for node_id in self._grid.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        with self._lock:  # the app may change contents before clients work on them
            sent = [message for message in messages if self._may_be_sent(message)]
            contents = {id(content): content for content in (message.content for message in sent)}
            copies = {key: copied(content) for key, content in contents.items()}
            return [self._push(message, copies[id(message.content)]) for message in sent]

    def _may_be_sent(self, message: Message) -> bool:
        errors = message_errors(message, is_reply=False)
        if message.metadata.dst_node_id not in self._grid.get_node_ids():
            errors.append(f"Invalid destination node ID for Message: {message.metadata.dst_node_id}")
        if errors:
            LOGGER.error("a message is not sent: %s", ", ".join(errors))
        return not errors

    def _push(self, message: Message, content: RecordDict) -> str:
        own = with_content(message, content)
        (message_id,) = self._grid.push_messages([own])
        set_message_id(message, message_id)
        self._pushed[message_id] = own
        return message_id

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        with self._lock:
            self.finish()
            return [self._taken(message_id) for message_id in dict.fromkeys(message_ids)]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        if isinstance(caller := current_thread(), Caller):
            return caller.ask(list(messages))
        with self._lock:
            self.finish()
            return self._answers(list(self.push_messages(messages)), timeout)

    def finish(self) -> None:
        """Have all that was pushed answered, also what nobody pulls."""
        with self._lock:
            self._work_on(list(self._pushed), None)

    def _answers(self, message_ids: list[str], timeout: float | None) -> list[Message]:
        """The replies that come in time, in the order of the ids."""
        self._work_on(message_ids, timeout)
        return [self._taken(message_id) for message_id in message_ids if message_id in self._answered]

    def _taken(self, message_id: str) -> Message:
        """The reply to a message, which is then no longer kept; Flower's error if there is none."""
        message, reply = self._answered.pop(message_id, (None, None))
        return _unexpired(message, reply) if message and reply else unavailable(message_id)

    def _work_on(self, message_ids: list[str], timeout: float | None) -> None:
        sent = {message_id: self._pushed.pop(message_id) for message_id in message_ids}
        with self._rounds.phase(list(sent.values())) as told:
            for reply in self._in_time(in_turns(sent), timeout):
                message_id = reply.metadata.reply_to_message_id
                self._answered[message_id] = sent[message_id], reply
                told(reply)

    def _in_time(self, turns: Sequence[list[str]], timeout: float | None) -> Iterator[Message]:
        """The replies that come in time; a node begins with its next message when all have their first."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        for i, ids in enumerate(turns):
            left = timeout if timeout is None or self._inline else end - time.monotonic()
            if i == 0 or left is None or left > 0:
                yield from self._in_its_time(self._grid.work_on(ids, left), left)

    @property
    def _inline(self) -> bool:
        return bool(self._grid.place["backend"] == "inline")

    def _in_its_time(self, replies: Iterator[Message], timeout: float | None) -> Iterator[Message]:
        """The replies but those of clients in this process that took longer; workers' have been left out.

        Clients that would work at the same time take turns here, so each has the time for itself.
        """
        while True:
            started = time.monotonic()
            reply = next(replies, None)
            late = timeout is not None and time.monotonic() - started > timeout
            if reply is None:
                return
            if not (late and self._inline):
                yield reply


class NodeIds(set[int]):
    """Ids of nodes, in order: a set, as on Flower's engine, and with places, as with a SuperLink's list."""

    def __getitem__(self, place: Any) -> Any:
        return sorted(self)[place]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(super().__iter__()))


Sequence.register(NodeIds)  # for random.sample


def in_turns(messages: Mapping[str, Message]) -> list[list[str]]:
    """Return the ids of each node's first messages, of its second ones, ...: it has what it kept of the last.

    On workers, messages of one call are answered at the same time.
    """
    turns: list[list[str]] = []
    before = Counter[int]()
    for message_id, message in messages.items():
        node = message.metadata.dst_node_id
        if before[node] == len(turns):
            turns.append([])
        turns[before[node]].append(message_id)
        before[node] += 1
    return turns


def _unexpired(message: Message, reply: Message) -> Message:
    """The reply, or Flower's error if the message or the reply has expired."""
    late = [one.metadata.created_at + one.metadata.ttl < time.time() for one in (message, reply)]
    return unavailable(message.metadata.message_id, replied=not late[0]) if any(late) else reply

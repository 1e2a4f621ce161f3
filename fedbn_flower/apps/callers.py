"""Calls that a legacy server makes of its clients: each on a thread of its own, what they send together."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import pairwise
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from flwr.app import Message

PATIENCE = 1.0
"""Seconds that a call has for itself; then the next goes on, for which it may wait."""


class Caller(Thread):
    """A call, which halts where it asks and where it ends."""

    def __init__(self, call: Callable[[], Any], halted: "SimpleQueue[Caller]") -> None:
        super().__init__(daemon=True)
        self._call, self._halted = call, halted
        self.outcome: Any = None
        """What the call returned or raised."""
        self.asked: list[Message] | None = None
        """Messages to which it waits for replies; None if it has ended."""
        self.replies = Future[list[Message]]()

    def run(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as error:  # as a Future would keep it
            self.outcome = error
        self.asked = None
        self._halted.put(self)

    def ask(self, messages: list[Message]) -> list[Message]:
        """Return the replies to messages; is called on this thread."""
        self.asked, self.replies = messages, Future()
        self._halted.put(self)
        return self.replies.result()


def together(
    calls: Sequence[Callable[[], Any]], send: Callable[[list[Message]], Iterable[Message]]
) -> list[Any]:
    """Return what each call returns or raises; what they ask is sent together, on this thread.

    They take turns in their order, so that what they draw and count does not depend on the scheduler.
    """
    halted = SimpleQueue[Caller]()
    callers = [Caller(call, halted) for call in calls]
    due: Sequence[Callable[[], None]] = [caller.start for caller in callers]
    unfinished = len(callers)
    try:
        while unfinished:
            there = _in_turn(due, halted) or [halted.get()]
            asking = [caller for caller in there if caller.asked is not None]
            unfinished -= len(there) - len(asking)
            due = _answered(asking, send)
    finally:
        for caller in callers:
            caller.replies.cancel()  # of those that still wait when this is interrupted
    return [caller.outcome for caller in callers]


def _in_turn(due: Sequence[Callable[[], None]], halted: "SimpleQueue[Caller]") -> list[Caller]:
    """Let each go on until it halts. Those that wait for others, as for a lock, halt later."""
    there = []
    for go_on in due:
        go_on()
        with suppress(Empty):
            there.append(halted.get(timeout=PATIENCE))
    return there


def _answered(
    asking: Sequence[Caller], send: Callable[[list[Message]], Iterable[Message]]
) -> list[Callable[[], None]]:
    """Send what they ask; return what lets each go on with its replies."""
    messages = [message for caller in asking for message in caller.asked or []]
    share_contents(messages)
    replies = {reply.metadata.reply_to_message_id: reply for reply in send(messages)}
    found = [
        [replies[one.metadata.message_id] for one in caller.asked or [] if one.metadata.message_id in replies]
        for caller in asking
    ]
    return [partial(caller.replies.set_result, own) for caller, own in zip(asking, found, strict=True)]


def share_contents(messages: Sequence[Message]) -> None:
    """Have consecutive messages of equal contents share one, which is then sent to a worker once."""
    for before, message in pairwise(messages):
        if message.content == before.content:
            message.content = before.content

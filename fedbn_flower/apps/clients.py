"""Any ClientApp as the client side of a grid, with Flower's rules for what goes wrong.

Clients and the server's side have random numbers of their own, of whatever library an app takes them from.
"""

import bdb
import logging
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict

from ..core.private import ClientAppException, ErrorCode, message_errors, set_message_id, with_content
from .app import Component


def seed_libraries(*entropy: int) -> None:
    """Seed `random`, NumPy, and PyTorch if it is imported."""
    first, second, third = (int(word) for word in np.random.SeedSequence(entropy).generate_state(3))
    random.seed(first)
    np.random.seed(second)
    if torch := _torch():
        torch.manual_seed(third)


@contextmanager
def own_random_numbers(*entropy: int) -> Iterator[None]:
    """Seed the libraries within; afterwards their random numbers go on as if nothing had been drawn.

    A client in this process that seeds a library would otherwise decide which clients the server samples.
    """
    torch = _torch()
    before: tuple[Any, Any] = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch and torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices) if torch else nullcontext():
        seed_libraries(*entropy)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def _torch() -> Any:
    """PyTorch if an app has imported it: it takes seconds."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "random") else None


LOGGER = logging.getLogger("flwr.fedbn")


@dataclass(frozen=True)
class AppClients:
    """Answers messages by a ClientApp, one after the other.

    A client has copies of the message and of its Context, as if it were in a process of its own; its state
    changes only if it answers. What it draws of `random`, NumPy and PyTorch follows from the seed and the
    number of the message, wherever it runs.

    Parameters
    ----------
    app : Component
        The ClientApp.
    seed : int
        The run's.
    """

    app: Component
    seed: int
    prints = True

    def remembers(self, message: Message) -> bool:
        """Every message of Flower's is answered with the client's Context."""
        return True

    def answer(self, messages: Sequence[Message], contexts: Sequence[Context], summed: bool) -> list[Message]:
        """See `ClientSide`."""
        return [self._answer(message, context) for message, context in zip(messages, contexts, strict=True)]

    def _answer(self, message: Message, context: Context) -> Message:
        received = with_content(message, copied(message.content))
        own = Context(
            context.run_id,
            context.node_id,
            dict(context.node_config),
            copied(context.state),
            dict(context.run_config),
        )
        try:
            with own_random_numbers(self.seed, number_of(message)):
                reply: Any = self.app.load()(received, own)
            self._check(reply, message, own, context)
        except (bdb.BdbQuit, KeyboardInterrupt):  # a person ends the run
            raise
        except SystemExit as error:
            return _failed(message, ErrorCode.CLIENT_APP_CRASHED, f"the ClientApp exited with {error.code!r}")
        except _Refused as error:
            return _failed(message, ErrorCode.UNKNOWN, str(error))
        except BaseException as error:  # as asyncio's CancelledError: an answer, never the runtime's end
            frames = traceback.TracebackException.from_exception(error)
            reason = f"{ClientAppException}:<'{''.join(frames.format())}'>"
            return _failed(message, ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason)
        context.state = copied(own.state)
        if reply.has_content():
            reply.content = copied(reply.content)
        return cast(Message, reply)

    def _check(self, reply: object, message: Message, own: Context, context: Context) -> None:
        """Refuse what Flower's engine would not take, or would wait for in vain."""
        if not isinstance(reply, Message):
            raise _Refused(f"the ClientApp returned {type(reply).__name__}; expected a Message")
        set_message_id(reply, f"reply-{number_of(message)}")
        errors = message_errors(reply, is_reply=True)
        if reply.metadata.reply_to_message_id != message.metadata.message_id:
            errors.append("it is no reply to the message: Message(content, reply_to=message)")
        if errors:
            raise _Refused(f"the ClientApp's reply cannot be sent: {errors[0]}")
        if not isinstance(own.state, RecordDict):
            raise _Refused(f"the ClientApp set context.state to {own.state!r}; expected a RecordDict")
        if own.run_config != context.run_config:
            raise _Refused("the ClientApp changed context.run_config, which cannot be modified")


class _Refused(Exception):
    """A reply that cannot be used."""


def number_of(message: Message) -> int:
    """Return the number of a message of one of our grids: they count their messages."""
    return int(message.metadata.message_id.rpartition("-")[2])


def copied(content: RecordDict) -> RecordDict:
    """Return a copy that shares nothing that can be changed; arrays cannot."""
    return RecordDict({name: _copied(record) for name, record in content.items()})


def _copied(record: Any) -> Any:
    if isinstance(record, ArrayRecord):
        return ArrayRecord(dict(record.items()))
    values = ((key, list(value) if isinstance(value, list) else value) for key, value in record.items())
    return type(record)(dict(values))


def _failed(message: Message, code: int, reason: str) -> Message:
    to = message.metadata
    LOGGER.error("node %d failed to answer a message of %s: %s", to.dst_node_id, to.message_type, reason)
    return Message(Error(code=code, reason=reason), reply_to=message)

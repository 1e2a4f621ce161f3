"""The worker of a node: it answers one message after the other, with what it has imported and loaded before.

It listens at a Unix socket, to doors that know its secret. It ends when it has been idle for long, when its
run is complete, and with what started it: the node, or during a message the process of that message.
"""

import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from flwr.app import RecordDict

from ..core.ground.wire import QUERY_COMPLETE
from .channel import Channel, InvalidPacket, admit, packed_failure
from .node import NoWorker, wait_until_ended
from .packing import packed_reply, packed_state, request_of
from .place import Place
from .workers import ASK, BEAT, FAILURE, PATIENCE, REPLY

LOGGER = logging.getLogger("flwr.fedbn")

EVERY = 1.0
"""Seconds from one beat to the next."""
SOON = 1.0
"""Seconds after which a worker that is not needed any more looks whether it may end."""


class Worker:
    """The worker of one node, in a process of its own.

    Parameters
    ----------
    folder : str
        Its `Place`.
    secret : str
        What doors have to know, in hexadecimal digits.
    listener : int
        The descriptor of the socket at which it listens.
    process, descriptor
        What it ends with, as `wait_until_ended` takes them.
    idle : float
        Seconds without a message after which it ends.
    """

    def __init__(
        self, folder: str, secret: str, listener: int, process: int, descriptor: int | None, idle: float
    ) -> None:
        self.place = Place(Path(folder))
        self.secret = bytes.fromhex(secret)
        self.listener = socket.socket(fileno=listener)
        self.idle = idle
        self._node = process, descriptor
        self._waiting = idle

    def run(self) -> None:
        """Answer messages until there is no need for it any more."""
        self.place.live()
        if descriptor := self._node[1]:
            os.set_inheritable(descriptor, False)
        self.listener.set_inheritable(False)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        threading.Thread(target=self._end_with_the_node, daemon=True).start()
        LOGGER.info("warm: worker %d stays for this node's next messages", os.getpid())
        while True:
            self.listener.settimeout(self._waiting)
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                self._leave()
                continue
            with Channel(connection, PATIENCE) as channel:
                self._serve(channel)

    def _serve(self, channel: Channel) -> None:
        try:
            admit(channel, self.secret)
            kind, parts = channel.receive()
            if kind != ASK:
                raise InvalidPacket(f"a packet of kind {kind!r}")
        except OSError as error:
            LOGGER.warning("warm: a connection was refused (%s)", error)
            return
        self._waiting = self.idle
        with self._beating(channel):
            kind, answer = self._answer(parts)
        try:
            channel.send(kind, answer)
        except OSError as error:
            LOGGER.warning("warm: the client process ended before it had its answer (%s)", error)
        for module in ("fedbn_flower.site.adapter", "torch"):  # while the others do their round
            with contextlib.suppress(Exception):  # a message that needs it will say so
                importlib.import_module(module)
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda and cuda.is_initialized():
            with contextlib.suppress(OSError):
                self.place.hold_the_gpu()

    def _answer(self, parts: list[bytes]) -> tuple[bytes, list[bytes]]:
        state = RecordDict()
        try:
            message, context = request_of(parts)
            state = context.state
            from ..client_app import app

            reply = app(message, context)
            if message.metadata.message_type == QUERY_COMPLETE:
                self._waiting = SOON
            return REPLY, packed_reply(reply, context.state)
        except Exception as error:
            return FAILURE, [packed_failure(error), *packed_state(state)]
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    @contextlib.contextmanager
    def _beating(self, channel: Channel) -> Iterator[None]:
        """Tell the door that this process lives. If the door does not, end, before anything is written."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(EVERY):
                try:
                    channel.send(BEAT)
                    ended = channel.has_ended()
                except OSError:
                    ended = True
                if ended:
                    _end()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _leave(self) -> None:
        """End, unless a door is about to ask."""
        with contextlib.suppress(NoWorker), self.place.reserved() as free:
            if not free:
                self._waiting = SOON
                return
            LOGGER.info("warm: worker %d ends, since no message came", os.getpid())
            self._remove_place()
        _end()

    def _end_with_the_node(self) -> None:
        wait_until_ended(*self._node)
        self._remove_place()
        _end()

    def _remove_place(self) -> None:
        """Remove the folder, if it is not another worker's: who cleans up for a user may have removed it."""
        record = self.place.record()
        if record and record.process == os.getpid():
            self.place.remove()


def _end() -> None:
    """End this process at once, and what it has started: it is the first of a group of its own."""
    os.killpg(os.getpid(), signal.SIGKILL)

"""Packets of bytes over a Unix socket, between two processes that share a secret. Nothing is pickled.

A client's error goes from its worker to the door, which raises it again: Flower treats it as before.
"""

import hmac
import json
import secrets
import select
import socket
import struct
import threading
import traceback
from collections.abc import Sequence

from ..core.errors import UserError

HEAD = struct.Struct("!cI")  # what kind of packet, and how many parts follow
LENGTH = struct.Struct("!Q")  # of a part, in bytes
MOST_PARTS = 2**20
LONGEST_PART = 2**34
"""Bytes: no array of a model is longer."""
NONCE = PROOF = 32
"""Bytes."""
HELLO, PROVEN = b"H", b"P"


class InvalidPacket(ConnectionError):
    """What the other process sent is not what was agreed on."""


class Channel:
    """One connection; packets may be sent from several threads.

    Parameters
    ----------
    connection : socket.socket
        Connected; it is closed with the channel.
    patience : float
        Seconds after which a peer that neither sends nor takes a byte counts as hung.

    Raises
    ------
    OSError
        By every method: `TimeoutError` of a peer that hangs, `ConnectionError` of one that has ended or sends
        what is not a packet.
    """

    def __init__(self, connection: socket.socket, patience: float) -> None:
        connection.settimeout(patience)
        self._connection = connection
        self._sending = threading.Lock()

    def __enter__(self) -> "Channel":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, kind: bytes, parts: Sequence[bytes] = ()) -> None:
        """Send a packet of a kind, one byte, with its parts."""
        lengths = b"".join(LENGTH.pack(len(part)) for part in parts)
        with self._sending:
            self._connection.sendall(HEAD.pack(kind, len(parts)) + lengths)
            for part in filter(None, parts):  # who has read the last byte may close
                self._connection.sendall(part)

    def receive(
        self, most_parts: int = MOST_PARTS, longest_part: int = LONGEST_PART
    ) -> tuple[bytes, list[bytes]]:
        """Return the kind of the next packet and its parts; no memory is taken for more than is allowed."""
        kind, count = HEAD.unpack(self._exactly(HEAD.size))
        if count > most_parts:
            raise InvalidPacket(f"a packet of {count} parts, more than {most_parts}")
        lengths = [LENGTH.unpack(self._exactly(LENGTH.size))[0] for _ in range(count)]
        if (longest := max(lengths, default=0)) > longest_part:
            raise InvalidPacket(f"a part of {longest} bytes, more than {longest_part}")
        return kind, [self._exactly(length) for length in lengths]

    def has_ended(self) -> bool:
        """Whether the other process has closed the connection. It is not expected to send anything now."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(0)) and not self._connection.recv(1, socket.MSG_PEEK)

    def _exactly(self, length: int) -> bytes:
        data = bytearray(length)
        rest = memoryview(data)
        while rest:
            if not (count := self._connection.recv_into(rest)):
                raise ConnectionResetError("the connection was closed")
            rest = rest[count:]
        return bytes(data)


def prove_to_worker(channel: Channel, secret: bytes) -> None:
    """Prove that this process, which has connected, knows the secret, once the worker has.

    Raises
    ------
    OSError
        As `Channel`, and when the worker's proof is wrong.
    """
    mine = secrets.token_bytes(NONCE)
    channel.send(HELLO, [mine])
    theirs, proof = _greeting(channel, HELLO, 2)
    _check(proof, _proof(secret, b"worker", mine, theirs))
    channel.send(PROVEN, [_proof(secret, b"door", theirs, mine)])


def admit(channel: Channel, secret: bytes) -> None:
    """Prove to a process that has connected that this worker knows the secret, and have it prove the same.

    Raises
    ------
    OSError
        As `Channel`, and when its proof is wrong.
    """
    (theirs,) = _greeting(channel, HELLO, 1)
    mine = secrets.token_bytes(NONCE)
    channel.send(HELLO, [mine, _proof(secret, b"worker", theirs, mine)])
    (proof,) = _greeting(channel, PROVEN, 1)
    _check(proof, _proof(secret, b"door", mine, theirs))


def _greeting(channel: Channel, kind: bytes, count: int) -> list[bytes]:
    found, parts = channel.receive(count, NONCE)
    if found != kind or [len(part) for part in parts] != [NONCE] * count:
        raise InvalidPacket("not a greeting")
    return parts


def _proof(secret: bytes, side: bytes, *nonces: bytes) -> bytes:
    return hmac.digest(secret, b"".join((side, *nonces)), "sha256")


def _check(proof: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(proof, expected):
        raise InvalidPacket("another secret")


class InWorker(Exception):
    """The traceback of an error in the worker, as its cause in the log."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def packed_failure(error: Exception) -> bytes:
    """Return what is told of an error: its kind, its text and its traceback."""
    kind = type(error)
    told = {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "text": str(error),
        "mistake": isinstance(error, UserError),
        "import": isinstance(error, ImportError),
        "traceback": "".join(traceback.format_exception(error)),
    }
    return json.dumps(told).encode()


def failure_of(data: bytes) -> Exception:
    """Return an error of the same name and text, and the same to `except UserError` and ``ImportError``.

    Raises
    ------
    InvalidPacket
        When this is not of `packed_failure`.
    """
    try:
        told = json.loads(data)
        base = UserError if told["mistake"] else ImportError if told["import"] else Exception
        kind = type(told["name"].rpartition(".")[2], (base,), {"__module__": told["module"]})
        kind.__qualname__ = told["name"]
        error: Exception = kind(told["text"])
        error.__cause__ = InWorker(told["traceback"])
    except (AttributeError, KeyError, TypeError, ValueError) as wrong:
        raise InvalidPacket(f"not an error ({wrong})") from wrong
    return error

"""Find the worker of a node, or start one, and have it answer."""

import contextlib
import hashlib
import json
import logging
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flwr.app import Context, Message, RecordDict

from ..core.partition_id import idle_seconds
from ..core.version import __version__
from ..packages import HERE, PLACES
from .channel import Channel, InvalidPacket, failure_of, prove_to_worker
from .node import NoWorker, WorkerLost, descriptor_of, name_of_node
from .packing import packed_request, reply_of, state_of
from .place import Place, Record, make_room, places, remove_left_places


def identity_of(context: Context, process: int) -> str:
    """Return a digest of the node, the run, its configuration, and the version and code of this process.

    Parameters
    ----------
    context : Context
        The node's, in this run.
    process : int
        What starts the node's client processes.
    """
    facts = {
        "code": digest_of([HERE, *(folder for folders in PLACES.values() for folder in folders)]),
        "node": [context.node_id, process],
        "node-config": context.node_config,
        "path": sys.path,
        "python": [sys.executable, sys.version],
        "run": context.run_id,
        "run-config": context.run_config,
        "version": __version__,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def digest_of(folders: Iterable[Path]) -> str:
    """Return a digest of the Python files of folders: their names and what is in them."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            digest.update(json.dumps([str(path.relative_to(folder)), len(content)]).encode() + content)
    return digest.hexdigest()


LOGGER = logging.getLogger("flwr.fedbn")

BOOT = Path(__file__).with_name("boot.py")
ASK, BEAT, REPLY, FAILURE = b"A", b"B", b"R", b"F"
"""The kinds of packets: what is asked; that the worker lives; and how it answers."""
PATIENCE = 120.0
"""Seconds without a beat after which a worker that starts, or is at work, counts as hung."""
GREETING = 60.0
"""Seconds that a worker which should be idle has for a greeting: it may still be importing."""


@dataclass(frozen=True)
class Answer:
    """What a worker answers: a reply or an error, and what is then the client's state."""

    reply: Message | None
    failure: Exception | None
    state: RecordDict


def ask(message: Message, context: Context, process: int) -> Answer:
    """Have the node's worker answer a message; start one if there is none for this run.

    A worker that ends or hangs is replaced, and the new one answers, once. Where a privacy ledger is kept,
    which has been charged for the answer, this is an error instead.

    Parameters
    ----------
    message, context
        As Flower gives them to the client.
    process : int
        What starts the node's client processes: the worker ends with it.

    Raises
    ------
    NoWorker
        When none can be used.
    WorkerLost
        When it ended before it had answered, or hangs and cannot be ended.
    """
    node = name_of_node(context.node_id, process)
    place = Place(places() / f"{node}-{context.run_id:x}")
    with place.reserved() as free:
        if not free:
            raise NoWorker("the worker is at work on another message")
        place.use()
        make_room(place.folder.parent, node)
        identity, request = identity_of(context, process), packed_request(message, context)
        idle = idle_seconds(context)
        lost = ""
        for _ in range(2):
            channel = found(place, identity) or started(place, identity, process, idle)
            with channel:
                try:
                    return _exchanged(channel, request)
                except OSError as error:
                    lost = str(error)
            try:
                place.kill()
            except NoWorker as error:  # it may still answer and keep a memory: nobody else is to
                raise WorkerLost(
                    f"the site's worker hangs ({lost}), and cannot be ended ({error})"
                ) from error
            LOGGER.warning("warm: the worker ended before it had answered (%s)", lost)
            if _is_charged(context):
                break
        raise WorkerLost(f"the site's worker ended before it had answered ({lost})")


def found(place: Place, identity: str) -> Channel | None:
    """Connect to the worker that was started for the same; end any other, and return None."""
    record = place.record()
    if record and record.identity == identity:
        with contextlib.suppress(OSError):
            return _connected(place, record, GREETING)
    place.kill()
    return None


def started(place: Place, identity: str, process: int, idle: float) -> Channel:
    """Start a worker and connect to it.

    Raises
    ------
    NoWorker
        When it does not start.
    """
    remove_left_places(place.folder.parent)
    secret = secrets.token_hex(32)
    worker = None
    try:
        with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
            listener.bind(stack.enter_context(place.address()))
            listener.listen()
            if (descriptor := descriptor_of(process)) is not None:
                stack.callback(os.close, descriptor)
            start = {
                "path": sys.path,
                "folder": str(place.folder),
                "secret": secret,
                "listener": listener.fileno(),
                "process": process,
                "descriptor": descriptor,
                "idle": idle,
            }
            passed = [listener.fileno(), *([] if descriptor is None else [descriptor])]
            worker = subprocess.Popen(
                [sys.executable, BOOT], stdin=subprocess.PIPE, pass_fds=passed, start_new_session=True
            )
            record = Record(worker.pid, identity, secret)
            place.write(record)
            assert worker.stdin
            with worker.stdin as pipe:
                pipe.write(json.dumps(start).encode())
        return _connected(place, record, PATIENCE)
    except (AttributeError, OSError) as error:  # no sockets of this kind, no process, no room
        if worker:
            worker.kill()
            worker.wait()
        place.clear()
        raise NoWorker(f"no worker starts ({error})") from error


def _connected(place: Place, record: Record, patience: float) -> Channel:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(patience)
        with place.address() as address:
            connection.connect(address)
        prove_to_worker(Channel(connection, patience), bytes.fromhex(record.secret))
    except BaseException:
        connection.close()
        raise
    return Channel(connection, PATIENCE)


def _exchanged(channel: Channel, request: list[bytes]) -> Answer:
    channel.send(ASK, request)
    while True:
        kind, parts = channel.receive()
        if kind == REPLY:
            reply, state = reply_of(parts)
            return Answer(reply, None, state)
        if kind == FAILURE and parts:
            return Answer(None, failure_of(parts[0]), state_of(parts[1:]))
        if kind != BEAT:
            raise InvalidPacket(f"a packet of kind {kind!r}")


def _is_charged(context: Context) -> bool:
    from ..privacy.private_run import against_server  # not imported by a door whose worker answers

    return against_server(context.run_config)

"""The SuperNode of a client process: what starts one for every message."""

import hashlib
import json
import os
import select
import socket
import sys
import time
from pathlib import Path

CLIENT_PROCESS = "flwr-clientapp"
"""The program that Flower starts for a message."""
INSTALLS = "--allow-runtime-dependency-installation"
"""Its flag, with which packages are installed for this process and removed with it."""


class NoWorker(OSError):
    """Why no worker can be used here; the message is answered without one."""


class WorkerLost(RuntimeError):
    """The worker ended, or hung, before it had answered."""


def node_process() -> int | None:
    """Return the process that starts this node's client processes.

    None where this process is not one, as in simulations; where it has packages of its own that go with it;
    and where nothing started it that would outlive it, as in a container for every message.
    """
    if Path(sys.argv[0]).stem != CLIENT_PROCESS or INSTALLS in sys.argv:
        return None
    return os.getppid() or None


def name_of_node(node_id: int, process: int) -> str:
    """Return what the folder of a node's worker is called: of each node, also of containers, another name."""
    space = Path("/proc/self/ns/pid")
    where = os.readlink(space) if space.is_symlink() else ""
    words = json.dumps([node_id, process, where, socket.gethostname()])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def descriptor_of(process: int) -> int | None:
    """Open a descriptor that tells when the parent of this process ends; None where the system has none.

    Raises
    ------
    NoWorker
        When it has ended.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        descriptor: int = os.pidfd_open(process)
    except OSError:
        return None
    if os.getppid() != process:
        os.close(descriptor)
        raise NoWorker("the node has ended")
    return descriptor


def wait_until_ended(process: int, descriptor: int | None, every: float = 1.0) -> None:
    """Wait for a process to end; without its descriptor, look ``every`` so many seconds."""
    if descriptor is not None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not poll.poll():
            pass
        return
    while True:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        except PermissionError:  # it is another user's, and lives
            pass
        time.sleep(every)

"""What Ray does not offer: a check that it is there, and Rays that are somebody else's."""

import socket
import time
from collections.abc import Iterable
from typing import Any

import ray
from ray.exceptions import (
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
)

from ...core.errors import RunCutOff, not_allowed


def check_cluster(address: str) -> None:
    """Refuse an address that nobody answers at; Ray itself would go on trying for minutes.

    Raises
    ------
    UserError
        When nobody answers there, or this process has a Ray already.
    """
    if ray.is_initialized():
        raise not_allowed("ray-address", address, "none: this process is connected to a Ray, which is used")
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise not_allowed("ray-address", address, f"HOST:PORT of a running cluster ({error})") from error


def raylet_address() -> tuple[str, int]:
    """Host and port of the raylet that this process is connected to."""
    here = ray.get_runtime_context().get_node_id()
    node = next(node for node in ray.nodes() if node["NodeID"] == here)  # type: ignore[no-untyped-call]
    return node["NodeManagerAddress"], node["NodeManagerPort"]


class Raylet:
    """The raylet on this machine, watched through one connection to it.

    Parameters
    ----------
    address : tuple[str, int]
        Its host and port.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self._connection: socket.socket | None = None

    def check(self) -> None:
        """Refuse to go on without the raylet, and leave Ray: it would end this process without a word, when
        it uses the store or some seconds later.

        Raises
        ------
        RunCutOff
            When nobody answers there.
        """
        try:
            if not self._is_connected():
                self._connection = socket.create_connection(self.address, timeout=10)
                self._connection.setblocking(False)
        except OSError as error:
            ray.shutdown()
            raise RunCutOff(f"Ray's raylet on this machine has died ({error})") from error

    def close(self) -> None:
        """Close the connection."""
        if self._connection:
            self._connection.close()
        self._connection = None

    def _is_connected(self) -> bool:
        """Return whether the other end is open; a raylet closes what it does not understand after a while."""
        try:
            while self._connection and self._connection.recv(2**12):
                pass
        except BlockingIOError:
            return True
        except OSError:
            pass
        self.close()
        return False


LOST = (LocalRayletDiedError, NodeDiedError, ObjectLostError, OutOfMemoryError, RayActorError)


def is_lost(error: RayError) -> bool:
    """Return whether a call failed since its worker, or the machine it was on, has died."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return isinstance(cause, LOST)


def all_cores() -> int:
    """How many cores the machines of this process's Ray have."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 0))


def gpus(free: bool) -> int:
    """How many GPUs the machines of this process's Ray have, all or those that are ``free``."""
    found: dict[str, float] = ray.available_resources() if free else ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(found.get("GPU", 0))


def share_of_a_gpu(workers: int, gpus: int) -> float:
    """How much of a GPU each worker gets so that all have room: whole 1/10,000, which is what Ray counts."""
    return 10_000 // -(-workers // gpus) / 10_000


PATIENCE = 10.0  # seconds; Ray counts a core as free some time after its worker has ended


def free_cores(workers: int) -> int:
    """How many cores the Ray that this process is connected to has free; those of a run before may become
    so in a moment.

    Raises
    ------
    UserError
        When it has none, or fewer than ``workers``: those that get no core would be waited for in vain.
    """
    wanted = max(1, workers)
    if (cores := _free_before_long(wanted) if wanted <= all_cores() else _free()) < wanted:
        raise not_allowed("workers", workers, f"at most {cores}, the cores that the running Ray has free")
    return cores


def end_workers(workers: Iterable[Any], cores: int) -> None:
    """End actors, and wait until as many cores are free again."""
    for worker in workers:
        ray.kill(worker)
    _free_before_long(cores)


def _free_before_long(cores: int) -> int:
    """Return how many cores are free once as many are, or after `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    while (found := _free()) < cores and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _free() -> int:
    resources: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 0))

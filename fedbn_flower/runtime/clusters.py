"""Rays that are somebody else's: a cluster at an address, or one that this process is connected to."""

import socket
from typing import Any

import ray

from ..errors import not_allowed


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


def free_cores(workers: int) -> int:
    """How many cores the Ray that this process is connected to has free.

    Raises
    ------
    UserError
        When it has none, or fewer than ``workers``: those that get no core would be waited for in vain.
    """
    free: dict[str, Any] = ray.available_resources()  # type: ignore[no-untyped-call]
    cores = int(free.get("CPU", 0))
    if cores < max(1, workers):
        raise not_allowed("workers", workers, f"at most {cores}, the cores that the running Ray has free")
    return cores

"""How many workers this machine bears."""

import logging
import os
import sys

from ..core.errors import not_allowed
from ..core.free_memory import available_memory
from .wanted import WantedWorkers

LOGGER = logging.getLogger("flwr.fedbn")

WORKER = 350 * 2**20
"""Bytes that an idle worker has for itself: Python, torch, Flower and Ray."""


def check_workers(config: WantedWorkers) -> None:
    """Warn of more Ray workers than cores, and refuse more than there is memory for.

    A Ray that runs already, here or at an address, has cores and memory that only it knows.

    Raises
    ------
    UserError
        When the memory that is available is too little.
    """
    ray = sys.modules.get("ray")
    if config.backend == "inline" or config.ray_address or (ray and ray.is_initialized()):
        return
    cores, available = os.cpu_count() or 1, available_memory()
    most = max(cores, available // WORKER)  # as many as cores are the default
    if config.workers > most:
        memory = f"{available / 2**30:.1f} GiB of memory are free, and a worker takes {WORKER / 2**30:.2f}"
        raise not_allowed("workers", config.workers, f"at most {most}: {memory}")
    if config.workers > cores:
        LOGGER.warning("workers: %d share %d cores, and are no quicker than %d", config.workers, cores, cores)

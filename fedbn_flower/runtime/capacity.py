"""How many workers this machine bears."""

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from ..config.run_config import RunConfig
from ..core.errors import not_allowed

LOGGER = logging.getLogger("flwr.fedbn")

WORKER = 350 * 2**20
"""Bytes that an idle worker has for itself: Python, torch, Flower and Ray."""
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


def check_workers(config: RunConfig) -> None:
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


def available_memory() -> int:
    """Bytes that new processes can have: the machine's, or what is left of a container's limit."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):
        found.append(_counted(Path("/proc/meminfo"))["MemAvailable:"] * 2**10)
    for limit, used, stat in CGROUPS:
        with suppress(OSError, ValueError):  # "max" where there is no limit
            cached = _counted(Path(stat)).get("inactive_file", 0)
            found.append(int(Path(limit).read_text()) - int(Path(used).read_text()) + cached)
    return max(0, min(found))


def _counted(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number a line."""
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows}

"""The workers that a configuration asks for, how many this machine bears, their memory, and the grid."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from .. import annexes
from ..core.errors import not_allowed
from ..core.free_memory import available_memory
from .grid import InlineGrid, LocalGrid


class WantedWorkers(Protocol):
    """A run's configuration, as far as it asks for workers."""

    @property
    def backend(self) -> str:
        """Of auto, inline and ray."""

    @property
    def workers(self) -> int:
        """How many; 0 for one a core."""

    @property
    def verbose(self) -> bool:
        """Whether Ray's log lines are shown."""

    @property
    def ray_address(self) -> str:
        """``HOST:PORT`` of a running cluster, or empty."""

    @property
    def device(self) -> str:
        """Where clients compute."""


LOGGER = logging.getLogger("flwr.fedbn")

WORKER = 350 * 2**20
"""Bytes that an idle worker has for itself: Python, torch, Flower and Ray."""
# Gradients come and go with every step: glibc is to keep their memory, not to fetch it anew each time.
MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}


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


class Pool(Protocol):
    """Workers on which clients can run."""

    def close(self) -> None:
        """End them, if they were started."""


@dataclass(frozen=True)
class Work:
    """What a run has its workers do.

    Parameters
    ----------
    rounds : int
        Number of the run's last round.
    remembers, examples, evaluated_at_once
        As of `RayGrid`.
    data : tuple[str, str, str], optional
        The key that names the data, its value, and the digest of the data on this machine: those of all
        machines have to have it.
    may_move : callable
        Whether workers may be started; seconds at a prompt of a debugger are none of the clients' work.
    """

    rounds: int
    remembers: bool = True
    examples: Sequence[int] = ()
    evaluated_at_once: bool = False
    data: tuple[str, str, str] | None = None
    may_move: Callable[[], bool] = lambda: True


def pool_for(config: WantedWorkers, runs: int = 1) -> Pool | None:
    """Return the workers that the configuration asks for; None for this process alone.

    ``runs`` is the number of runs that share them.

    With ``auto``, a cluster's address asks for its workers at once, and a device other than the CPU for none.

    Raises
    ------
    UserError
        When there is no cluster at the address, too few cores are free, or workers are not there at all.
    """
    if config.backend == "ray" or (config.backend == "auto" and config.ray_address):
        started: Pool = annexes.load("workers", "at-once", f"backend: {config.backend!r}")(config)
        return started
    if config.backend != "auto" or config.device != "cpu":
        return None
    later = annexes.brought("workers").get("once-they-pay")
    return later(config, runs) if later else None


def grid_on(pool: Pool | None, inline: InlineGrid, work: Work) -> LocalGrid:
    """Return the grid of a run on workers, or in this process alone without any.

    Raises
    ------
    UserError
        When the workers have started, and lack the run's data or cannot be sent an object of its session.
    """
    if pool is None:
        return inline
    grid: LocalGrid = annexes.load("grids", "workers")(pool, inline, work)
    return grid


@contextmanager
def starting_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Let processes that are started in the block have these in their environment."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def keeping_freed_memory() -> AbstractContextManager[None]:
    """Let processes that are started in the block keep the memory that they free."""
    return starting_with({name: value for name, value in MEMORY.items() if name not in os.environ})

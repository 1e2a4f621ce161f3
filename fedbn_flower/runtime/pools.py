"""The workers that a configuration asks for, how many this machine bears, and when they start."""

import logging
import os
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..core.errors import not_allowed
from ..core.free_memory import available_memory


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


if TYPE_CHECKING:
    from .ray.pool import RayPool


class BackgroundPool:
    """Ray's workers, started in a thread while clients train in this process.

    A machine whose cores others keep busy when this is made gets none: they would all wait for each other.

    Parameters
    ----------
    config : WantedWorkers
        The configuration that says how many workers, and whether Ray's log lines are shown.
    runs_left : int
        How many runs that have not begun will use the workers.
    """

    def __init__(self, config: WantedWorkers, runs_left: int = 1) -> None:
        self.runs_left = runs_left
        self.workers = config.workers or os.cpu_count() or 1
        self._config = config
        self._pool: RayPool | None = None
        self._thread: threading.Thread | None = None
        self._usable = True
        self._tried, self._closing = threading.Event(), threading.Event()
        self._load = os.getloadavg()[0]

    def start(self, why: str) -> None:
        """Start the workers, and log why; nothing happens where they have been started or cannot be used."""
        cores = os.cpu_count() or 1
        if self._usable and self._load >= 2 * cores:  # once is what a run before this one leaves
            self.give_up(RuntimeError(f"others keep all {cores} cores busy (load average {self._load:.1f})"))
        if self._thread is None and self._usable:
            LOGGER.info("Ray's workers start, since %s", why)
            self._thread = threading.Thread(target=self._live, name="Ray", daemon=True)
            self._thread.start()

    def _live(self) -> None:
        """Start Ray, and wait: its daemons end with the thread that started them."""
        try:
            self._pool = start_ray(self._config)
            self._pool.wait_for_workers()
        except Exception as error:
            self.give_up(error)
        finally:
            self._tried.set()
        self._closing.wait()

    @property
    def started(self) -> bool:
        """Whether `start` was called."""
        return self._thread is not None or not self._usable

    @property
    def ready(self) -> "RayPool | None":
        """The workers, if all have started and can be used."""
        return self._pool if self._tried.is_set() and self._usable else None

    def give_up(self, error: Exception) -> None:
        """Warn that the workers cannot be used, and do without them."""
        self._usable = False
        reason = " ".join(str(error).split()) or type(error).__name__
        LOGGER.warning("Ray's workers are not used, everything runs in this process: %s", reason)

    def close(self) -> None:
        """End the workers, if they were started."""
        if self._thread:
            self._tried.wait()
            if self._pool:
                self._pool.close()
            self._closing.set()
            self._thread.join()


Pool: TypeAlias = "RayPool | BackgroundPool"


def pool_for(config: WantedWorkers, runs: int = 1) -> "Pool | None":
    """Return the workers that the configuration asks for; None for this process alone.

    ``runs`` is the number of runs that share them.

    With ``auto``, a cluster's address asks for its workers at once, and a device other than the CPU for none.
    """
    if config.backend == "ray" or (config.backend == "auto" and config.ray_address):
        return start_ray(config)
    return BackgroundPool(config, runs) if config.backend == "auto" and config.device == "cpu" else None


def start_ray(config: WantedWorkers) -> "RayPool":
    """Start Ray and its workers.

    Raises
    ------
    UserError
        See `RayPool`.
    """
    logging.getLogger("ray.widgets").setLevel(logging.WARNING)
    with warnings.catch_warnings():  # in a notebook Ray and its tqdm ask for ipywidgets, which none here uses
        warnings.filterwarnings("ignore", "IProgress not found")
        from .ray.pool import RayPool  # half a second that nobody else is to wait for

    return RayPool(config.workers, config.verbose, config.ray_address, on_gpus=config.device != "cpu")

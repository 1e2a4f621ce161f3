"""Ray's workers, at once or once they pay."""

import logging
import os
import threading
import warnings
from typing import TYPE_CHECKING

from ..pools import WantedWorkers

if TYPE_CHECKING:
    from .pool import RayPool

LOGGER = logging.getLogger("flwr.fedbn")


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
        from .pool import RayPool  # half a second that nobody else is to wait for

    return RayPool(config.workers, config.verbose, config.ray_address, on_gpus=config.device != "cpu")

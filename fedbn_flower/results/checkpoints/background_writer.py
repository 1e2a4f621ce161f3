"""Write files on a background thread."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

MAX_QUEUED = 2**28  # bytes that wait to be written


class BackgroundWriter:
    """Run jobs in order on one thread, while the run continues.

    After a failure no further job runs, since later jobs may rely on earlier ones. The failure is raised to
    whoever waits.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._queue: deque[tuple[Future[None], int]] = deque()
        self._failed = False

    def submit(self, job: Callable[[], object], size: int) -> None:
        """Queue a job that holds ``size`` bytes; wait while the queued jobs hold more than `MAX_QUEUED`.

        What the job writes must not change in the meantime.
        """
        while sum(queued for _, queued in self._queue) > MAX_QUEUED:
            self._wait_for_first()
        self._queue.append((self._thread.submit(self._run, job), size))

    def wait(self) -> None:
        """Wait until all jobs are done."""
        while self._queue:
            self._wait_for_first()

    def close(self) -> None:
        """Wait until all jobs are done, then end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _wait_for_first(self) -> None:
        self._queue[0][0].result()
        self._queue.popleft()

    def _run(self, job: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            job()
        except BaseException:
            self._failed = True
            raise

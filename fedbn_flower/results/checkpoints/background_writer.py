"""Writing behind a run's back."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

HELD = 2**28  # bytes that wait to be written


class Writer:
    """One thread that does what it is given, in order, while the run goes on.

    After a failure it does nothing more: what comes later may rely on what came before. The failure is raised
    by whoever waits.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "writer")
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._failed = False

    def do(self, job: Callable[[], object], size: int) -> None:
        """Have a job done, which holds so many bytes; waits while those before it hold more than `HELD`.

        What it writes must not change meanwhile.
        """
        while sum(held for _, held in self._waiting) > HELD:
            self._wait_for_first()
        self._waiting.append((self._thread.submit(self._run, job), size))

    def wait(self) -> None:
        """Until all is done."""
        while self._waiting:
            self._wait_for_first()

    def close(self) -> None:
        """End the thread, once all is done."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _wait_for_first(self) -> None:
        self._waiting[0][0].result()
        self._waiting.popleft()

    def _run(self, job: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            job()
        except BaseException:
            self._failed = True
            raise

"""Run several runs in parallel, each in one process; results are bit-identical to other runtimes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from fedbn_flower.clients.modules.lazy_torch import torch

from ..config.making import run_config
from ..config.run_config import RunConfig
from ..core.logs import LOGGER, NOTICE, notice, show_log
from ..runtime.pools import keeping_freed_memory
from ..runtime.signals import stop_once, stopping_later
from .cells import Cell, Outcome, run_cell

POLL_INTERVAL = 0.5  # seconds between two updates of the progress bar
STOP_TIMEOUT = 30.0  # seconds in which a stopped run may write its results


def number_in_parallel(runs: int, workers: int, clients: int) -> int:
    """Return how many runs are faster in parallel; the others are faster one by one, each on all workers.

    A run in one process takes one unit of time; on all workers it takes ``1 / min(workers, clients)``. Sets
    of as many runs as workers keep every worker busy. The remaining runs join them only if there are enough.

    Parameters
    ----------
    runs : int
        The number of runs.
    workers : int
        The number of processes.
    clients : int
        The number of clients that train in a round.
    """
    rest = runs % workers
    return runs if rest >= min(workers, clients) else runs - rest


def can_run_in_parallel(cells: Sequence[Cell]) -> bool:
    """Return whether all runs may use all CPU cores; on a GPU only where a number of workers is given."""
    configs = [cell.config for cell in cells]
    return all(
        c.backend != "inline" and not c.ray_address and (c.device == "cpu" or bool(c.workers))
        for c in configs
    )


def side_by_side(cells: Sequence[Cell]) -> int:
    """Return how many of the runs, the first ones, are run in parallel.

    On a GPU all are, if any: a client's step there leaves most of it idle, and further processes fill it.
    """
    if not cells or not can_run_in_parallel(cells):
        return 0
    if any(cell.config.device != "cpu" for cell in cells):
        return len(cells)
    return number_in_parallel(len(cells), workers_of(cells), clients_in_a_round(cells))


def workers_of(cells: Sequence[Cell]) -> int:
    """Return the number of worker processes."""
    return cells[0].config.workers or os.cpu_count() or 1


def clients_in_a_round(cells: Sequence[Cell]) -> int:
    """Return the number of clients that train in a round, the smallest of all runs."""
    return min(cell.config.clients_a_round for cell in cells)


def run_in_parallel(
    configs: Sequence[RunConfig], count: int, tick: Callable[[], object]
) -> Generator[tuple[int, Outcome]]:
    """Run each configuration in its folder, ``count`` at a time; yield its index and outcome as it ends.

    A process that dies (out of memory) fails its own run only. If the caller stops early, the current runs
    are stopped and write the results so far.
    """
    waiting = deque(enumerate(configs))
    workers = [_Worker() for _ in range(min(count, len(configs)))]
    try:
        for worker in workers:
            worker.start_run(*waiting.popleft())
        while busy := {worker.connection: worker for worker in workers if worker.busy}:
            ready = wait(list(busy), POLL_INTERVAL)
            tick()
            for connection in ready:
                assert isinstance(connection, Connection)
                worker = busy[connection]
                found = worker.received()
                if isinstance(found, str):
                    with _prefixed_lines(Path(configs[worker.number].run_dir).name):
                        notice(found)
                    continue
                ended = worker.number, found
                if waiting:
                    worker.start_run(*waiting.popleft())
                yield ended
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()


class _Worker:
    """A process that does one run after another; it is replaced if it dies."""

    connection: Connection

    def __init__(self) -> None:
        self.number = 0
        self.busy = False
        self._process: SpawnProcess | None = None

    def start_run(self, number: int, config: RunConfig) -> None:
        if self._process is None:
            self._start(config.verbose)
        self.number, self.busy = number, True
        with suppress(OSError):  # the process has died: `outcome` reports it
            self.connection.send(config.to_user_config())

    def _start(self, verbose: bool) -> None:
        resource_tracker.ensure_running()  # its start would let signals through
        self.connection, child_end = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=_work, args=(child_end, verbose))
        with keeping_freed_memory(), stopping_later():
            process.start()
            self._process = process
        child_end.close()

    def received(self) -> Outcome | str:
        """Return what its process sends: a notice, or how its run ended."""
        try:
            found: Outcome | str = self.connection.recv()
        except (EOFError, OSError):
            found = None, f"its process ended: {self.join()}"
        self.busy = isinstance(found, str)
        return found

    def stop(self) -> None:
        """Tell the process to end; terminate its run, if any."""
        if self._process:
            self.connection.close()
            if self.busy:
                self._process.terminate()

    def join(self) -> str:
        """Wait until the process has ended, and return its signal or exit status."""
        process, self._process = self._process, None
        if process is None:
            return ""
        process.join(STOP_TIMEOUT)
        if process.exitcode is None:
            process.kill()
            process.join()
        code = process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"status {code}"


def _work(connection: Connection, verbose: bool) -> None:
    """Do the runs that arrive on the connection until it is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    show_log(verbose)

    def is_shown(record: logging.LogRecord) -> bool:
        if told := hasattr(record, NOTICE):
            with suppress(OSError):
                connection.send(record.getMessage())
        return not told

    LOGGER.addFilter(is_shown)
    torch.set_num_threads(1)  # the other cores belong to the other runs
    with suppress(KeyboardInterrupt, EOFError, OSError):
        stop_once()
        while True:
            config = run_config(connection.recv())
            with _prefixed_lines(Path(config.run_dir).name):
                outcome = run_cell(config)
            connection.send(outcome)


@contextmanager
def _prefixed_lines(name: str) -> Iterator[None]:
    """Prefix log lines with the name of the run."""

    def add_prefix(record: logging.LogRecord) -> bool:
        record.msg = f"{name}: {record.msg}"
        return True

    for handler in LOGGER.handlers:
        handler.addFilter(add_prefix)
    try:
        yield
    finally:
        for handler in LOGGER.handlers:
            handler.removeFilter(add_prefix)


def _end_with_parent() -> None:
    """Exit at once when the parent has ended; the run can be resumed from its files."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)

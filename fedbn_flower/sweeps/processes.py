"""Runs side by side, each whole in a process of its own; the same bits as on any other runtime."""

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

import torch

from ..config.run_config import RunConfig
from ..core.logs import show_log
from ..runtime.process_memory import memory_kept
from ..runtime.signals import stop_once, stopping_later
from .cells import Cell, Outcome, attempt

PAUSE = 0.5  # seconds between two looks at what is running
PATIENCE = 30.0  # seconds in which a run that is stopped writes what it has


def how_many_side_by_side(runs: int, workers: int, clients: int) -> int:
    """How many of the runs are quicker side by side; the others are, one by one, with all workers on each.

    A run alone in a process takes a unit of time, and on all workers one part of it for every worker that has
    a client. Full sets of as many runs as workers leave none without work; of the rest, it depends.

    Parameters
    ----------
    runs : int
        Runs to do.
    workers : int
        Processes to do them with.
    clients : int
        Clients that train in a round of theirs.
    """
    rest = runs % workers
    return runs if rest >= min(workers, clients) else runs - rest


def may_run_side_by_side(cells: Sequence[Cell]) -> bool:
    """Whether these runs are for Ray workers of this machine's cores."""
    configs = [cell.config for cell in cells]
    return all(c.backend == "ray" and not c.ray_address and c.device == "cpu" for c in configs)


def workers_of(cells: Sequence[Cell]) -> int:
    """How many processes there are to be."""
    return cells[0].config.workers or os.cpu_count() or 1


def clients_in_a_round(cells: Sequence[Cell]) -> int:
    """How many clients train in a round of the run that has the fewest."""
    return min(cell.config.clients_a_round for cell in cells)


def run_side_by_side(
    configs: Sequence[RunConfig], count: int, tick: Callable[[], object]
) -> Generator[tuple[int, Outcome]]:
    """Run each in its folder, as many at a time as ``count``; the place and the outcome of each as it ends.

    A process that dies (of too little memory) is the failure of its run only. When the caller ends early,
    what is running is told to stop and writes what it has.
    """
    waiting = deque(enumerate(configs))
    slots = [_Slot() for _ in range(min(count, len(configs)))]
    try:
        for slot in slots:
            slot.begin(*waiting.popleft())
        while busy := {slot.connection: slot for slot in slots if slot.busy}:
            ready = wait(list(busy), PAUSE)
            tick()
            for connection in ready:
                assert isinstance(connection, Connection)
                slot = busy[connection]
                ended = slot.number, slot.outcome()
                if waiting:
                    slot.begin(*waiting.popleft())
                yield ended
    finally:
        for slot in slots:
            slot.stop()
        for slot in slots:
            slot.end()


class _Slot:
    """A process that does one run after another, made anew if it dies."""

    connection: Connection

    def __init__(self) -> None:
        self.number = 0
        self.busy = False
        self._process: SpawnProcess | None = None

    def begin(self, number: int, config: RunConfig) -> None:
        if self._process is None:
            self._start(config.verbose)
        self.number, self.busy = number, True
        with suppress(OSError):  # it has died, which is told by `outcome`
            self.connection.send(config.to_user_config())

    def _start(self, verbose: bool) -> None:
        resource_tracker.ensure_running()  # it lets signals through when it starts
        self.connection, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=_work, args=(theirs, verbose))
        with memory_kept(), stopping_later():
            process.start()
            self._process = process
        theirs.close()

    def outcome(self) -> Outcome:
        self.busy = False
        try:
            found: Outcome = self.connection.recv()
        except (EOFError, OSError):
            return None, f"its process ended: {self.end()}"
        return found

    def stop(self) -> None:
        """Tell it to end, at once if it is at work."""
        if self._process:
            self.connection.close()
            if self.busy:
                self._process.terminate()

    def end(self) -> str:
        """Wait until it has ended; how, in words."""
        process, self._process = self._process, None
        if process is None:
            return ""
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            process.join()
        code = process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"status {code}"


def _work(connection: Connection, verbose: bool) -> None:
    """What a process does until the other end is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logger = logging.getLogger("flwr")
    show_log(verbose)
    torch.set_num_threads(1)  # the cores are the other runs'
    with suppress(KeyboardInterrupt, EOFError, OSError):
        stop_once()
        while True:
            config = RunConfig.of(connection.recv())
            with _lines_named(logger, Path(config.run_dir).name):
                outcome = attempt(config)
            connection.send(outcome)


@contextmanager
def _lines_named(logger: logging.Logger, name: str) -> Iterator[None]:
    """Log lines say which of the runs they are about."""

    def named(record: logging.LogRecord) -> bool:
        record.msg = f"{name}: {record.msg}"
        return True

    for handler in logger.handlers:
        handler.addFilter(named)
    try:
        yield
    finally:
        for handler in logger.handlers:
            handler.removeFilter(named)


def _end_with_parent() -> None:
    """End as a kill does: what is on the disk can be gone on with."""
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()
    os._exit(1)

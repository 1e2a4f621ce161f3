"""What the Flower ServerApp does under ``flwr run``."""

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.serverapp import Grid

from fedbn_flower.strategies.messages.npy import array_bytes

from .. import annexes
from ..config.making import run_config
from ..config.run_config import RunConfig
from ..core.errors import RunCutOff, RunFailed, UserError
from ..core.ground.columns import without_prefixes
from ..core.logs import colour_in_terminals_only
from ..core.private import Run, retry_invoker_of
from ..job.checks.unused_keys import FLOWER
from ..records.events import Observer, RoundResult, RunInfo
from ..results.plotting.drawer import drawing_apart
from ..results.resume import check_unchanged, load_checkpoint
from ..results.run_directory import default_run_folder, run_folder_locked
from ..results.run_folder import RunFolder
from ..server.exchange import IN_THIS_PROCESS, OVER_THE_NETWORK
from ..server.federation import Federation
from .recorded_run import check_installed, recorded_run

LOGGER = logging.getLogger("flwr.fedbn")

LONGEST_LINE = 50  # metrics
LOST = 60.0  # seconds; the SuperLink itself holds a ServerApp for lost that it has not heard of for so long
AT_ONCE = 4  # replies of unknown size that are asked for and so in memory together
AT_ONCE_BYTES = 2**26  # of the messages that they answer: 64 small replies are one request, not 16
REQUESTS = 16  # in a look, at most: the SuperLink has work with each, also if it finds no reply
PATIENCE = LOST + 30  # seconds; the server's process outlives a SuperLink that was killed, for so long


class RoundLog(Observer):
    """Logs a line a round, without metrics by class."""

    _metrics: frozenset[str] = frozenset()

    def on_start(self, info: RunInfo) -> None:
        self._metrics = frozenset(info.metrics)
        for note in info.learnt:
            LOGGER.info("%s", note)

    def on_round(self, result: RoundResult) -> None:
        by_class = self._metrics.difference(result.metric_names)
        words = [
            f"{name} {value:.4f}"
            for name, value in result.metrics.items()
            if without_prefixes(name) not in by_class
        ]
        if len(words) > LONGEST_LINE:
            words[LONGEST_LINE:] = [f"and {len(words) - LONGEST_LINE} more"]
        words.append(f"failures {result.failures}")
        LOGGER.info("round %d: %s", result.server_round, ", ".join(words))


def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run config describes; the results go to ``run-dir``, by default a new
    folder under ``$FLWR_HOME/fedbn-flower/runs`` of the process; the log names it first and last.

    With ``resume``, it goes on in that folder from the last checkpoint; the SuperNodes go on from what they
    have in their ``state-dir``.

    Raises
    ------
    UserError, RunFailed
        In one line; Flower marks the run as failed.
    """
    logging.getLogger("flwr").addFilter(_without_traceback)
    colour_in_terminals_only()
    try:
        with _superlink_lost(grid), drawing_apart():
            _run(StreamingGrid(grid), run_config(context.run_config))
    except (UserError, RunFailed) as error:
        LOGGER.error("%s", error)
        raise


def _without_traceback(record: logging.LogRecord) -> bool:
    """Drop the traceback that Flower logs with an error of one line."""
    if record.exc_info and isinstance(record.exc_info[1], UserError | RunFailed):
        record.exc_info = None
    return True


@contextmanager
def _superlink_lost(grid: Grid) -> Iterator[None]:
    """End when the SuperLink is lost: Flower's grid retries for ever, and the folder would stay locked."""
    retries = retry_invoker_of(grid)
    if retries:
        retries.max_time = LOST
    try:
        yield
    except getattr(retries, "recoverable_exceptions", ()) as error:
        raise RunCutOff(f"the SuperLink is lost ({error}); go on with the key resume") from error


class StreamingGrid(Grid):
    """One of Flower's grids, with replies that stream back as they come.

    Flower's own `send_and_receive` returns when all replies are there, with all of them: 4.5 GB for 100 nodes
    and a model of 45 MB. Here a reply can be summed and freed while others are on their way.

    Parameters
    ----------
    grid : Grid
        Flower's grid.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.waits = OVER_THE_NETWORK if retry_invoker_of(grid) else IN_THIS_PROCESS
        self._together = AT_ONCE  # of the replies to the last messages

    def set_run(self, run: Run) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Run:
        return self.grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self.grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        self._together = replies_at_once(sent)
        return self.grid.push_messages(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        """Yield the replies that are there, and ask for few together, once those before are taken."""
        asked, together = iter(list(message_ids)), self._together
        while some := list(islice(asked, together)):
            with _superlink_lost(self.grid):
                replies = list(self.grid.pull_messages(some))
            while replies:
                yield replies.pop(0)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send the messages; yield the replies that come within ``timeout`` seconds."""
        return self._arriving(list(self.push_messages(messages)), timeout)

    def _arriving(self, message_ids: list[str], timeout: float | None) -> Iterator[Message]:
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        awaited, wait = dict.fromkeys(message_ids), self.waits.shortest
        while awaited and time.monotonic() < deadline:
            before = len(awaited)
            for reply in self.pull_messages(awaited):
                awaited.pop(reply.metadata.reply_to_message_id, None)
                yield reply
                del reply  # before others are asked for
            found = len(awaited) < before
            wait = self.waits.shortest if found else self.waits.after(wait)
            if awaited:
                time.sleep(wait)


def replies_at_once(messages: Sequence[Message]) -> int:
    """Return how many replies are asked for together; those to a model are about as large as the model.

    Nobody knows how large the replies to a message without arrays are: few, then.
    """
    largest = max((array_bytes(message.content) for message in messages), default=0)
    return max(1, AT_ONCE_BYTES // largest, ceil(len(messages) / REQUESTS)) if largest else AT_ONCE


def _run(grid: Grid, config: RunConfig) -> None:
    check_installed(config)
    federation = Federation(config, FLOWER)
    if config.inspect:
        annexes.load("instead", "inspect")(grid, federation)
        return
    if config.resume:
        check_unchanged(federation)
    folder = folder_of(config)
    LOGGER.info("results go to %s", folder)
    with run_folder_locked(config, folder, patience=PATIENCE):
        checkpoint = load_checkpoint(config, clients_here=False) if config.resume else None
        if checkpoint:
            LOGGER.info("resuming %s after round %d", folder, checkpoint.server_round)
        results = RunFolder(folder, federation, checkpoint=checkpoint)
        recorded_run(federation, grid, results, [RoundLog()], checkpoint)
        federation.tell_complete(grid)
    LOGGER.info("results are in %s", folder)


def folder_of(config: RunConfig) -> Path:
    """Return the run's folder, in full: a person does not see in which directory this process is."""
    path = config.resume or config.run_dir
    home = os.environ.get("FLWR_HOME") or Path.home() / ".flwr"
    folder = default_run_folder(Path(home) / "fedbn-flower") if path == "auto" else Path(path)
    return folder.resolve()

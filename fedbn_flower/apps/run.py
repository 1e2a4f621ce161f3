"""Run a Flower app on this project's grids; clients of legacy servers work on this thread, and in order."""

import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, get_args

from flwr.app import Context, RecordDict
from flwr.serverapp import ServerApp

from .. import annexes
from ..config.keys import RUN_KEYS
from ..core.errors import RunFailed, UserError, not_allowed
from ..core.private import SUPERLINK_NODE_ID, app_run, calls_of_legacy_servers, waits_for_nodes
from ..records.events import RunInfo
from ..runtime.grid import RUN_ID, InlineGrid, LocalGrid
from ..runtime.pools import Pool, Work, check_workers, grid_on, pool_for
from ..runtime.signals import forked_children_end_by_sigterm
from ..strategies.signature import LegacyApi
from .app import NODES, FlowerApp, checked_nodes, importable
from .app_grid import AppGrid
from .callers import together
from .clients import AppClients, seed_libraries
from .folder import ARRAYS, logged, write_config, write_metrics, write_results, write_summary
from .results import START, Results, is_number
from .rounds import Line, Rounds


class Call(Future):
    """A call that `wait` makes."""

    def __init__(self, order: int, call: Callable[[], Any]) -> None:
        super().__init__()
        self.order = order
        self.call = call


class Calls(Executor):
    """Keeps the calls of a phase until they are waited for."""

    def __init__(self, max_workers: int | None = None) -> None:
        self._orders = count()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Call:
        """Keep a call."""
        return Call(next(self._orders), partial(fn, *args, **kwargs))


@contextmanager
def legacy_servers_on(grid: AppGrid) -> Iterator[None]:
    """Have legacy servers ask all clients of a phase at once; replies are in the order of the clients."""

    def wait(fs: Set[Call], timeout: float | None = None) -> tuple[Sequence[Future], set[Future]]:
        calls = sorted(fs, key=lambda one: one.order)
        for call, outcome in zip(
            calls, together([one.call for one in calls], grid.send_and_receive), strict=True
        ):
            if isinstance(outcome, BaseException):
                call.set_exception(outcome)
            else:
                call.set_result(outcome)
        return calls, set()

    with calls_of_legacy_servers(Calls, wait):
        yield


LOGGER = logging.getLogger("flwr.fedbn")

AUTO, INLINE, RAY = BACKENDS = ("auto", "inline", "ray")
DEBUGGERS = ("debugpy", "pydevd")
NONE, *_ = TRACKERS = get_args(RUN_KEYS["track"].annotation)


@dataclass(frozen=True)
class Settings:
    """How an app is run.

    Parameters
    ----------
    num_supernodes : int
        Virtual nodes.
    backend : str
        ``inline``: everything in this process and thread; ``ray``: clients on workers; ``auto``: inline, and
        from the middle of the run on workers if these save time. Under a debugger ``auto`` is ``inline``.
    workers : int
        Ray's; 0 for one a core.
    seed : int
        Of `random`, NumPy and PyTorch.
    verbose : bool
        Whether Ray's own lines are shown.
    """

    num_supernodes: int
    backend: str = AUTO
    workers: int = 0
    seed: int = 0
    verbose: bool = False
    ray_address: str = ""
    device: str = "cpu"
    track: str = NONE
    """The tracker of experiments that gets the configuration and every round."""
    nodes_from: str = ""
    """Where their number is from, if nobody gave it."""

    def __post_init__(self) -> None:
        checked_nodes(NODES, self.num_supernodes)
        numbers = {"workers": (0, 10_000), "seed": (0, 2**63 - 1)}
        for key, (least, most) in numbers.items():
            value = getattr(self, key.replace("-", "_"))
            if type(value) is not int or not least <= value <= most:
                raise not_allowed(key, value, f"a whole number from {least} to {most}")
        for key, names in {"backend": BACKENDS, "track": TRACKERS}.items():
            if (name := getattr(self, key)) not in names:
                raise not_allowed(key, name, f"one of {', '.join(names)}")
        if self.track != NONE:
            annexes.load("installed", "trackers", "track")(self)
        if self.backend == INLINE and self.workers:
            raise not_allowed("workers", self.workers, f"0 with backend {INLINE!r}, which has none")


@dataclass
class Outcome:
    """What an app's run came to."""

    results: Results
    rounds: Rounds
    seconds: float = 0.0
    place: dict[str, Any] = field(default_factory=dict)
    """Where clients ran at the end."""


def run_in_folder(app: FlowerApp, settings: Settings, folder: Path, show_line: bool) -> Outcome:
    """Run an app; its configuration, log and results go to a folder, whatever ends it.

    Raises
    ------
    UserError
        When a side of the app cannot be found, before anything starts.
    RunFailed
        When every client failed.
    Exception
        What the app itself raises.
    """
    if settings.backend == AUTO and is_debugged():
        settings = replace(settings, backend=INLINE, workers=0)
    check_workers(settings)
    folder = folder.absolute()  # the app may change the current folder
    line = Line(sys.stderr, show_line and not is_debugged())
    write_config(folder, _described(app, settings))
    rounds = Rounds()
    outcome = Outcome(Results(rounds), rounds)
    started = time.monotonic()
    tracked = Tracked(app, settings, folder, outcome.results)
    rounds.watchers += [line, tracked]
    with logged(folder, line) as log, tracked:
        try:
            with importable(app.folder, app.server.reference, app.client.reference):
                _run(app, settings, outcome)
        except BaseException:
            log.write(traceback.format_exc())
            raise
        finally:
            outcome.seconds = time.monotonic() - started
            write_results(folder, outcome.results)
        write_summary(folder, outcome.results, rounds, outcome.seconds)
    return outcome


def is_debugged() -> bool:
    """Return whether a debugger watches this process."""
    monitoring = getattr(sys, "monitoring", None)
    watches = monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
    return sys.gettrace() is not None or watches or any(name in sys.modules for name in DEBUGGERS)


def _described(app: FlowerApp, settings: Settings) -> dict[str, Any]:
    return {
        "app": app.name,
        "version": app.version,
        "folder": str(app.folder or ""),
        "run-config": app.run_config,
        "overrides": app.overrides,
        NODES: settings.num_supernodes,
        "backend": settings.backend,
        "workers": settings.workers,
        "seed": settings.seed,
    }


class Tracked:
    """Writes the table of the rounds before each new one, and sends them to the tracker, if there is one."""

    def __init__(self, app: FlowerApp, settings: Settings, folder: Path, results: Results) -> None:
        self._folder, self._results = folder, results
        self._written = self._sent = 0
        found = annexes.brought("observers").values() if settings.track != NONE else ()
        self._trackers = [tracker for trackers in found for tracker in trackers(settings)]
        own = {f"run-config.{key}": value for key, value in app.run_config.items()}
        config = {"app": app.name, **own, NODES: settings.num_supernodes, "seed": settings.seed}
        self._info = RunInfo(config, folder, 1, 0, app.name, "", (), (), "", frozenset())

    def __enter__(self) -> None:
        for tracker in self._trackers:
            tracker.on_start(self._info)

    def __call__(self, rounds: Rounds) -> None:
        if rounds.total > self._written:
            self._written = rounds.total
            write_metrics(self._folder, self._results)
            self._send()

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        self._send()
        for tracker in self._trackers:
            tracker.on_end(None, error)

    def _send(self) -> None:
        """Send the rounds that are new; those of several strategies are numbered on."""
        rows = self._results.rows() if self._trackers else []
        for number, row in enumerate(rows[self._sent :], start=self._sent):
            numbers = {name: float(cell) for name, cell in row.items() if is_number(cell)}
            for tracker in self._trackers:
                tracker.send(number if START in row else row["round"], numbers)
        self._sent = len(rows)


def _run(app: FlowerApp, settings: Settings, outcome: Outcome) -> None:
    for note in app.notes:
        LOGGER.warning("%s", note)
    server: ServerApp = app.server.load()
    app.client.load()
    if settings.nodes_from:
        LOGGER.info("%s: %d (%s)", NODES, settings.num_supernodes, settings.nodes_from)
    forked_children_end_by_sigterm()
    rounds = outcome.rounds
    with ExitStack() as stack:
        pool = stack.enter_context(_workers(settings))
        local = _grid(app, settings, pool, rounds)
        grid = AppGrid(local, app_run(RUN_ID, app.name, app.version, app.overrides), rounds)
        stack.enter_context(outcome.results.collected())
        stack.enter_context(legacy_servers_on(grid))
        stack.enter_context(waits_for_nodes(partial(_check_nodes, settings)))
        seed_libraries(settings.seed)
        try:
            server(grid, Context(RUN_ID, SUPERLINK_NODE_ID, {}, RecordDict(), dict(app.run_config)))
            grid.finish()
        except LegacyApi as error:
            raise UserError(f"app: {error}") from error
        finally:
            outcome.place = dict(local.place)
    if rounds.replies and rounds.failures == rounds.replies:
        raise RunFailed(f"every client failed: all {rounds.replies} replies were errors, which the log shows")
    if rounds.total and not outcome.results.arrays():
        LOGGER.info("no %s: no strategy, server or workflow of Flower's gave a model", ARRAYS)


def _check_nodes(settings: Settings, awaited: int) -> None:
    """Refuse to wait for nodes that never come."""
    if awaited > settings.num_supernodes:
        expected = f"at least {awaited}, for which the app's strategy waits"
        raise not_allowed(NODES, settings.num_supernodes, expected)


@contextmanager
def _workers(settings: Settings) -> Iterator[Pool | None]:
    pool = pool_for(settings)
    try:
        yield pool
    finally:
        if pool:
            pool.close()


def _grid(app: FlowerApp, settings: Settings, pool: Pool | None, rounds: Rounds) -> LocalGrid:
    clients = AppClients(app.client, settings.seed)
    inline = InlineGrid(settings.num_supernodes, app.run_config, clients=clients)
    known = "pdb" in sys.modules
    work = Work(rounds.expected_last(), may_move=lambda: known or "pdb" not in sys.modules)  # by breakpoint()
    grid = grid_on(pool, inline, work)
    rounds.watchers.append(partial(_plan, grid))
    return grid


def _plan(grid: LocalGrid, rounds: Rounds) -> None:
    grid.plan(rounds.total, rounds.expected_last())

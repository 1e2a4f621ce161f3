"""The Ray actors that simulations share, and the Ray they live in."""

import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import ray
from flwr.app import UserConfig
from ray.exceptions import RayError

from fedbn_flower.clients.problems.evaluation import Sums

from ...core.errors import RunFailed, not_allowed
from ...core.private import daemons_in_groups_of_their_own, ray_errors_in_the_log
from ...core.session_objects import session_objects
from ...site.adapter import FedbnClients
from ..grid import ClientSide
from ..pools import MEMORY, keeping_freed_memory, starting_with
from .clusters import (
    Raylet,
    all_cores,
    check_cluster,
    end_workers,
    free_cores,
    gpus,
    is_lost,
    raylet_address,
    share_of_a_gpu,
)
from .worker import Worker, sent, stored

LOGGER = logging.getLogger("flwr.fedbn")

ROOT = Path(__file__).resolve().parents[3]
INLINE = 2**19
"""Bytes up to which what a call returns comes with it in a Ray that is started here, `RayPool.inline`."""


class Phase(Protocol):
    """What keeps workers busy."""

    def abandon(self) -> None:
        """End the workers that are still busy with it."""


class RayPool:
    """Workers of one core each, in a new Ray or in a running cluster; ended by `close`.

    A Ray that this process is already connected to is used, and left running.

    Parameters
    ----------
    workers : int
        Number of actors; 0 for one a core or, with ``on_gpus``, one a GPU.
    verbose : bool
        Whether Ray's log lines are shown.
    address : str
        ``HOST:PORT`` of a running cluster; by default a new Ray. The project's code is sent to the
        cluster; datasets must lie at the same path on every machine.
    on_gpus : bool
        Whether clients compute on GPUs. The workers then share those that Ray finds, evenly, and each sees no
        other one than its own.

    Raises
    ------
    UserError
        When there is no cluster at the address, or the running Ray has too few free cores.
    """

    def __init__(self, workers: int, verbose: bool, address: str = "", on_gpus: bool = False) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # Freed at once, memory is used again while it is mapped and in the cache; Ray would wait a second.
        os.environ.setdefault("RAY_free_objects_batch_size", "1")
        # Ray's control service would keep a record of every call, by which it grows for hours.
        os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
        # Ray would give way to all else on the machine, and `auto` would lose by moving to its workers.
        os.environ.setdefault("RAY_worker_niceness", "0")
        # Sums of small models come with the call: through the object store the raylet has more to do.
        returns = {"RAY_max_direct_call_object_size": str(INLINE)}
        level = logging.INFO if verbose else logging.CRITICAL
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        options: dict[str, Any] = {}
        self._owns_ray = bool(address) or not ray.is_initialized()
        self.inline = self._owns_ray and not address
        """Whether what a call returns comes with it up to `INLINE` bytes."""
        if address:
            check_cluster(address)
            packages = [str(ROOT / name) for name in ("fedbn_flower", "strategies", "clients")]
            with sigterm_handled_as_before(), breakpoints_as_before():
                ray.init(
                    address=address,
                    runtime_env={"py_modules": packages, "env_vars": MEMORY},
                    log_to_driver=verbose,
                    logging_level=level,
                )
            cores = all_cores()
        elif not self._owns_ray:
            cores = free_cores(workers)
            options = {"runtime_env": {"env_vars": {"PYTHONPATH": path, **MEMORY}}}
        else:
            cores = os.cpu_count() or 1
            with (
                sigterm_handled_as_before(), breakpoints_as_before(), daemons_in_groups_of_their_own(),
                # By what they inherit: with an environment of Ray's own they would start seconds later.
                starting_with({"PYTHONPATH": path, **returns}), keeping_freed_memory(),
            ):  # fmt: skip
                ray.init(
                    address="local",  # never somebody's running cluster
                    num_cpus=workers or cores,
                    include_dashboard=False,
                    log_to_driver=verbose,
                    logging_level=level,
                )
        if not verbose:
            ray_errors_in_the_log()
        self._cores = cores
        found = gpus(free=not self._owns_ray) if on_gpus else 0
        self._on_gpus = found > 0
        if found:
            cores = min(cores, found)
            options["num_gpus"] = share_of_a_gpu(workers or cores, found)
        self._grows = bool(address) and not workers
        self.raylet = Raylet(raylet_address())
        self._actor = ray.remote(num_cpus=1, max_restarts=0, **options)(Worker)
        self._run: tuple[UserConfig, int, Any, Any] = ({}, 0, {}, FedbnClients())
        self._phase: Phase | None = None
        self.workers: list[Any] = [self._actor.remote(*self._run) for _ in range(workers or cores)]
        self.starting: dict[int, Any] = {}
        """What tells that a worker has started, of those that came later, by index: they get no calls before.

        A cluster that has lost a machine may never have room for one."""
        self._unusable: set[int] = set()
        self._data = ""

    def start_run(self, run_config: UserConfig, num_clients: int, clients: ClientSide | None = None) -> None:
        """Start this run on every worker, with the session's objects.

        Raises
        ------
        UserError
            When an object cannot be sent.
        RunFailed
            When a worker cannot be had, or cannot take one.
        """
        self._data, self._unusable = "", set()
        self._run = run_config, num_clients, stored(session_objects()), sent(clients or FedbnClients())
        calls = [worker.start_run.remote(*self._run) for worker in self.workers]
        _wait_for([calls[i] for i in self.started])
        self._ask_who_starts()

    def wait_for_workers(self) -> None:
        """Wait until every worker has started.

        Raises
        ------
        RunFailed
            When one cannot be had.
        """
        _wait_for([worker.process_id.remote() for worker in self.workers])

    @property
    def started(self) -> list[int]:
        """The indices of the workers that have started, and that can be used."""
        return [i for i in range(len(self.workers)) if i not in self.starting and i not in self._unusable]

    def check_data(self, key: str, value: str, digest: str) -> None:
        """Refuse a cluster of which a machine has not the run's data; one that comes later is not used.

        Parameters
        ----------
        key, value : str
            The key of the configuration that names the data, and its value.
        digest : str
            That of the data on this machine.

        Raises
        ------
        UserError
            When the data of a machine are missing, or others.
        RunFailed
            When a worker cannot say.
        """
        if self.inline:
            return
        self._data = digest
        self._ask_who_starts()
        for host, found, why in _wait_for([self.workers[i].data.remote() for i in self.started]):
            if found != digest:
                missing = f"data that machine {host!r} of the cluster has, too"
                raise not_allowed(key, value, f"{missing} ({why or 'it has others'})")

    def replace(self, index: int) -> None:
        """End a worker, if it still lives; one takes its place that gets calls once it has started."""
        ray.kill(self.workers[index])
        self._start(index)

    def grow(self) -> None:
        """Start workers on what a cluster has got since, unless their number was given."""
        if self._grows:
            places = min(all_cores(), gpus(free=False)) if self._on_gpus else all_cores()
            for index in range(len(self.workers), places):
                self.workers.append(None)
                self._start(index)

    def _start(self, index: int) -> None:
        self.workers[index] = self._actor.remote(*self._run)
        self._ask(index)

    def _ask_who_starts(self) -> None:
        """Ask those that have not started yet anew: what they say is of a run."""
        for index in list(self.starting):
            self._ask(index)

    def _ask(self, index: int) -> None:
        worker = self.workers[index]
        self.starting[index] = worker.data.remote() if self._data else worker.process_id.remote()

    def welcome(self, index: int) -> None:
        """Use a worker that has started, unless its machine has not the run's data.

        Raises
        ------
        RayError
            When it has died.
        """
        found = ray.get(self.starting.pop(index))
        if self._data and found[1] != self._data:
            LOGGER.warning("machine %r is not used: %s", found[0], found[2] or "it has other data")
            self._unusable.add(index)

    def evaluated(self, arrays: Any, splits: str, classes: int) -> list[Mapping[str, list[Sums]]] | None:
        """Return each worker's share of an evaluation of the model in the object store.

        None if one fails; it is replaced if it died.
        """
        self.begin(None)
        started = self.started
        calls = [
            self.workers[index].evaluate.remote(arrays, splits, classes, (i, len(started)))
            for i, index in enumerate(started)
        ]
        shares = []
        for index, call in zip(started, calls, strict=True):
            try:
                shares.append(ray.get(call))
            except RayError as error:
                LOGGER.info("the model is evaluated in this process: on a worker, %s", _last_line(error))
                if is_lost(error):
                    self.replace(index)
        return shares if len(shares) == len(started) else None

    def begin(self, phase: Phase | None) -> None:
        """Give the workers to a phase; those still busy with an earlier one are ended."""
        if self._phase:
            self._phase.abandon()
        self._phase = phase

    def close(self) -> None:
        """End the workers, and Ray if this pool started it."""
        self.raylet.close()
        if self._owns_ray or not ray.is_initialized():
            ray.shutdown()
            return
        end_workers(self.workers, self._cores)


def _wait_for(calls: list[Any]) -> list[Any]:
    """Return what a call to each worker gives; raise `RunFailed` if one cannot be had."""
    try:
        return ray.get(calls)
    except RayError as error:
        raise RunFailed(f"Ray's workers cannot start: {_last_line(error)}") from error


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]


@contextmanager
def sigterm_handled_as_before() -> Iterator[None]:
    """Ray puts a handler of its own, which exits, in the place of a program's; while it starts, that is met
    as the KeyboardInterrupt of a Ctrl-C."""
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    finally:
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def breakpoints_as_before() -> Iterator[None]:
    """Ray names a debugger of its own, which this process and those it starts would stop in."""
    name = "PYTHONBREAKPOINT"
    before = os.environ.get(name)
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before

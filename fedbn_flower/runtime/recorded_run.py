"""One run on any Grid, its folder written and its observers called: what all runtimes share."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from flwr.serverapp import Grid

from .. import annexes
from ..config.run_config import RunConfig
from ..core.errors import os_errors_as_user_errors
from ..records.checkpoint import Checkpoint
from ..records.events import Observer, RunInfo, observed
from ..records.summary import Summary
from ..results.run_folder import RunFolder
from ..server.federation import Federation


def check_installed(config: RunConfig) -> None:
    """Refuse what needs a package that is not installed where the server runs.

    Raises
    ------
    UserError
        With how to install it.
    """
    for check in annexes.brought("installed").values():
        check(config)


def recorded_run(
    federation: Federation,
    grid: Grid,
    results: RunFolder,
    observers: Iterable[Observer],
    checkpoint: Checkpoint | None,
) -> Summary | None:
    """Run a federation and return its summary; whatever ends the run, the folder is finished.

    A round is written before other observers see it, and the folder is finished before their ``on_end``.

    Raises
    ------
    UserError, RunFailed
        See `Federation.run`.
    """
    brought = [one for make in annexes.brought("observers").values() for one in make(federation.config)]
    observers = [*observers, *brought, *federation.extensions.all.values()]
    if federation.privacy:
        federation.ask_sizes(grid)
        done = checkpoint.server_round if checkpoint else 0
        with os_errors_as_user_errors("run-dir", f"write to {str(results.path)!r}"):
            mechanism = federation.privacy.begin(results.path, done, _repeats_bits(results))
        federation.strategy.mechanism = mechanism
    info = run_info(federation, results.path, checkpoint)
    with observed(observers, info, results.finish):
        federation.run(grid, [results, *observers], checkpoint)
    if federation.privacy:
        federation.privacy.end()
    return results.summary


def _repeats_bits(results: RunFolder) -> bool:
    """Whether rounds that are run again have the same bits: those of simulated clients on CPUs do."""
    return results.signature is not None and results.federation.config.device == "cpu"


def run_info(federation: Federation, folder: Path | None, checkpoint: Checkpoint | None) -> RunInfo:
    """Return what is known of a run before its first round."""
    first_round = checkpoint.server_round + 1 if checkpoint else 1
    return replace(federation.info, folder=folder, first_round=first_round, learnt=federation.learnt)

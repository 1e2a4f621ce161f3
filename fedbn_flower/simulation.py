"""One simulated run on a runtime of our own."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .checkpoint import Checkpoint, CheckpointFolder
from .config import RunConfig
from .errors import not_allowed
from .federation import Federation, Observer
from .run_folder import RunFolder
from .runtime import InlineGrid, LocalGrid
from .runtime.ray_grid import RayGrid, RayPool
from .task import cohort_size


def simulate(
    federation: Federation, folder: Path, pool: RayPool | None, observers: Iterable[Observer] = ()
) -> dict[str, Any]:
    """Run a federation on the pool, or in this process without one, and return its summary.

    With ``resume`` in its configuration it goes on in that folder from the last checkpoint: the server's
    state and every client's are those of the checkpoint's round, so the final model is the same, bit for
    bit, as if the run had never stopped.

    Raises
    ------
    UserError, RunFailed
        See `Federation.run`; what was done so far stays in the folder.
    """
    config = federation.config
    grid = make_grid(config, pool)
    checkpoint = None
    if config.resume:
        checkpoint = load_checkpoint(config)
        if checkpoint:
            for partition, state in checkpoints_of(config).client_states(checkpoint.server_round):
                grid.restore_client(partition, state)
    results = RunFolder(folder, federation, grid.client_state, checkpoint)
    try:
        federation.run(grid, [results, *observers], checkpoint)
    finally:
        results.finish()
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def checkpoints_of(config: RunConfig) -> CheckpointFolder:
    """The checkpoints of the run that ``resume`` names."""
    return CheckpointFolder(Path(config.resume) / "checkpoint")


def load_checkpoint(config: RunConfig) -> Checkpoint | None:
    """The checkpoint that the run goes on from; None if it was stopped before its first.

    Raises
    ------
    UserError
        When it cannot be read, lacks the clients' side, or no round is left to do.
    """
    checkpoint = checkpoints_of(config).load()
    if checkpoint is None:
        return None
    if not checkpoint.has_clients:
        raise not_allowed("resume", config.resume, "a run of run_sim.py; this one has no client states")
    if checkpoint.server_round >= config.rounds:
        raise not_allowed("rounds", config.rounds, f"more than the {checkpoint.server_round} done so far")
    return checkpoint


def make_grid(config: RunConfig, pool: RayPool | None) -> LocalGrid:
    """A Grid with one virtual node for each partition."""
    settings = (config.num_clients, config.to_user_config(), cohort_size(config))
    return InlineGrid(*settings) if pool is None else RayGrid(pool, *settings)

"""One simulated run on a runtime of our own."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .client_app import app
from .config import RunConfig
from .federation import Federation, Observer
from .run_folder import RunFolder
from .runtime import InlineGrid, LocalGrid
from .runtime.ray_grid import RayGrid, RayPool


def simulate(
    federation: Federation, folder: Path, pool: RayPool | None, observers: Iterable[Observer] = ()
) -> dict[str, Any]:
    """Run a federation on the pool, or in this process without one, and return its summary.

    Raises
    ------
    UserError, RunFailed
        See `Federation.run`; what was done so far stays in the folder.
    """
    config = federation.config
    results = RunFolder(folder, federation)
    try:
        federation.run(make_grid(config, pool), [results, *observers])
    finally:
        results.finish()
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def make_grid(config: RunConfig, pool: RayPool | None) -> LocalGrid:
    """A Grid with one virtual node for each partition."""
    if pool is None:
        return InlineGrid(app, config.num_clients, config.to_user_config())
    return RayGrid(pool, config.num_clients, config.to_user_config())

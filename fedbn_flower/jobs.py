"""What a command line asks for: one run, or a grid of them."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .commands import command
from .config import RunConfig
from .errors import RunFailed
from .results.comparison import Comparison
from .results.progress import cell_name, progress, summary_table
from .rounds import Federation
from .simulation import check_simulation, prepared_folder, ray_pool, simulate


def run(configs: Sequence[RunConfig]) -> int:
    """Run every cell; the exit status: 0 if all went well, 1 if a run could not do its work.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C and SIGTERM; in a run, its message says where the run is and how to go on with it.
    """
    console = Console()
    first = configs[0]
    logging.getLogger("flwr").setLevel(logging.INFO if first.verbose else logging.WARNING)
    for config in configs:  # every mistake is told before anything starts
        check_simulation(config)
        Federation(config)
    folder = prepared_folder(first)
    _say(console, f"results go to {folder}")
    grid = Comparison(folder) if len(configs) > 1 else None
    status = 0
    pool = ray_pool(first)
    try:
        for config in configs:
            place = folder / cell_name(config) if grid else folder
            try:
                with progress(config, console) as watch:
                    summary = simulate(Federation(config), place, pool, [watch])
            except KeyboardInterrupt:
                raise KeyboardInterrupt(_interrupted(place)) from None
            except RunFailed as error:
                print(f"{cell_name(config)} failed: {error}", file=sys.stderr)
                status = 1
                if grid:
                    grid.add(config, None, str(error))
                continue
            if grid:
                grid.add(config, summary)
            else:
                console.print(summary_table(config, summary))
    finally:
        if pool:
            pool.close()
        if grid:
            grid.plot()
    if grid:
        console.print(grid.table())
    _say(console, f"results are in {folder}")
    return status


def _interrupted(place: Path) -> str:
    """Where a run is that was stopped, and the command that goes on with it; empty before it has begun."""
    if not (place / "config.json").exists():
        return ""
    again = command(["--resume", str(place)])
    return f"interrupted; what was done so far is in {place}; to go on with it: {again}"


def _say(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, highlight=False, markup=False)

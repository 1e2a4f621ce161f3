"""What a command line asks for: one run, or a sweep of them."""

import sys
from pathlib import Path

from rich.console import Console

from ..config.run_config import RunConfig
from ..core.errors import RunCutOff, RunFailed
from ..core.logs import show_log
from ..federation.federation import Federation
from ..results.progress import cell_name, progress, say, summary_table, waiting
from ..results.resume import how_to_go_on
from ..results.terminal import fitted
from ..runtime.capacity import check_workers
from ..runtime.simulation import check_simulation, prepared_folder, ray_pool, simulate
from ..search.run import run_search
from ..search.search import Search
from ..sweeps.cells import Cell, cells_of
from ..sweeps.dry_run import told
from ..sweeps.experiment import swept_keys
from ..sweeps.sweep import check_sweep_folder, run_sweep, sweep_folder
from .parser import Job


def run(job: Job | Search) -> int:
    """Do it; the exit status: 0 if all went well, 1 if a run could not do its work.

    Raises
    ------
    KeyboardInterrupt
        On Ctrl-C and SIGTERM; in a run, its message says where the results are and how to go on.
    """
    if isinstance(job, Search):
        return run_search(job)
    console = Console()
    first = job.configs[0]
    show_log(first.verbose)
    check_workers(first)
    with waiting(console, "reading data"):
        for config in job.configs:  # every mistake is told before anything starts
            check_simulation(config)
            Federation(config)
    if job.dry_run:
        for line in told(_cells(job)):
            say(console, line)
        return 0
    folder = sweep_folder(first.run_dir) if job.sweep else prepared_folder(first)
    say(console, f"results go to {folder}")
    try:
        if job.sweep:
            failed = bool(run_sweep(job.sweep, job.configs, folder, console))
        else:
            failed = not _run_one(first, folder, console)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(how_to_go_on(folder)) from None
    say(console, f"results are in {folder}")
    return int(failed)


def _cells(job: Job) -> list[Cell]:
    """The runs where they are, or would be."""
    place = Path(job.configs[0].run_dir)
    if not job.sweep:
        return [Cell(cell_name(job.configs[0]), job.configs[0])]
    check_sweep_folder(place)
    cells = cells_of(job.configs, swept_keys(job.sweep, job.configs), place)
    for cell in cells:
        cell.check()
    return cells


def _run_one(config: RunConfig, folder: Path, console: Console) -> bool:
    """Whether it did its work."""
    with waiting(console, "starting workers"):
        pool = ray_pool(config)
    try:
        summary = simulate(Federation(config), folder, pool, [progress(config, console)])
    except RunFailed as error:
        print(f"{cell_name(config)} failed: {error}", file=sys.stderr)
        if isinstance(error, RunCutOff):
            print(how_to_go_on(folder), file=sys.stderr)
        return False
    finally:
        if pool:
            pool.close()
    console.print(fitted(summary_table(config, summary), console.width))
    return True

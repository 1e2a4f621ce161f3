"""A sweep: its runs side by side or one by one, its table, its folder."""

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from rich.console import Console

from ..config.run_config import RunConfig
from ..core.errors import not_allowed, os_errors_told
from ..core.files import UNFINISHED, json_text, write_atomically
from ..results.earlier import check_version
from ..results.manifest import EXPERIMENT
from ..results.progress import progress, say
from ..results.run_directory import LOCK, default_run_folder, folder_locked
from ..results.terminal import fit_to_width
from ..runtime.simulation import ray_pool
from .cells import Cell, Outcome, attempt, cells_of
from .experiment import Experiment, swept_keys
from .grid_table import Comparison
from .processes import (
    clients_in_a_round,
    how_many_side_by_side,
    may_run_side_by_side,
    run_side_by_side,
    workers_of,
)
from .progress import RoundsBar, end_line


def sweep_folder(run_dir: str) -> Path:
    """Where a sweep writes to: a new or empty folder, or a sweep's; a new one for ``auto``.

    Raises
    ------
    UserError
        When it is another one.
    """
    if run_dir == "auto":
        return default_run_folder()
    check_sweep_folder(Path(run_dir))
    return Path(run_dir)


def check_sweep_folder(folder: Path) -> None:
    """Refuse a folder of something else.

    Raises
    ------
    UserError
        When it has something in it, and is no sweep's, or one of version 0.1.
    """
    if not folder.exists() or (folder / EXPERIMENT).exists():
        return
    check_version(folder, "run-dir")
    if not folder.is_dir() or not all(_is_leftover(path) for path in folder.iterdir()):
        raise not_allowed("run-dir", str(folder), "a new or empty folder, or that of a sweep")


def _is_leftover(path: Path) -> bool:
    return path.name == LOCK or path.name.endswith(UNFINISHED)


@contextmanager
def to_oneself(folder: Path) -> Iterator[None]:
    """Have a sweep's folder, made if need be, to oneself.

    Raises
    ------
    UserError
        When it is another process's, or cannot be written to.
    """
    with os_errors_told("run-dir", f"write to {str(folder)!r}"):
        folder.mkdir(parents=True, exist_ok=True)
        with folder_locked(folder, "run-dir", beginning=EXPERIMENT):
            yield


def run_sweep(experiment: Experiment, configs: Sequence[RunConfig], folder: Path, console: Console) -> int:
    """Run what is missing in the folder; how many runs failed.

    Raises
    ------
    UserError
        When the folder is in use, or has another configuration's run in a cell's place.
    """
    keys = swept_keys(experiment, configs)
    cells = cells_of(configs, keys, folder)
    with to_oneself(folder):
        for cell in cells:
            cell.check()
        write_atomically(folder / EXPERIMENT, json_text(experiment.as_given(), indent=2) + "\n")
        grid = Comparison(folder, keys, [cell.name for cell in cells])
        missing = []
        for cell in cells:
            if summary := cell.summary:
                grid.add(cell.config, summary)
            else:
                missing.append(cell)
        if len(missing) < len(cells):
            say(console, f"{len(cells) - len(missing)} of {len(cells)} runs are done already")
        failed = 0
        try:
            with closing(_outcomes(missing, console)) as outcomes:
                for cell, (summary, problem) in outcomes:
                    grid.add(cell.config, summary, problem)
                    if summary:
                        say(console, end_line(cell.name, summary))
                    else:
                        print(f"{cell.name} failed: {problem}", file=sys.stderr)
                        failed += 1
        finally:
            grid.plot()
    console.print(fit_to_width(grid.table(), console.width))
    return failed


def _outcomes(cells: Sequence[Cell], console: Console) -> Generator[tuple[Cell, Outcome]]:
    """Each cell's as it ends."""
    together = _side_by_side(cells)
    if together:
        with RoundsBar(cells[:together], console) if console.is_terminal else nullcontext(None) as bar:
            configs = [cell.ready() for cell in cells[:together]]
            tick = bar.update if bar else list
            workers = workers_of(cells)
            with closing(run_side_by_side(configs, workers, tick)) as outcomes:
                for number, outcome in outcomes:
                    yield cells[number], outcome
    rest = cells[together:]
    pool = ray_pool(rest[0].config) if rest else None
    try:
        for cell in rest:
            with progress(cell.config, console, cell.name) as watch:
                outcome = attempt(cell.ready(), pool, [watch])
            yield cell, outcome
    finally:
        if pool:
            pool.close()


def _side_by_side(cells: Sequence[Cell]) -> int:
    """How many of them are run side by side, the first ones."""
    if not cells or not may_run_side_by_side(cells):
        return 0
    workers = workers_of(cells)
    return how_many_side_by_side(len(cells), workers, clients_in_a_round(cells))

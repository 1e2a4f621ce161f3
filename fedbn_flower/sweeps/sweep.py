"""Run a sweep: its runs in parallel or one by one, with a progress bar, its table, its folder."""

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from ..config.keys import RUN_KEYS
from ..config.run_config import RunConfig
from ..core.errors import not_allowed, os_errors_as_user_errors
from ..core.files import UNFINISHED, json_text, write_atomically
from ..core.logs import notices_once
from ..core.stored import EXPERIMENT
from ..core.text import number_of
from ..records.events import Observer, RoundResult
from ..records.metrics import shown, with_unit
from ..records.summary import Summary
from ..results.progress import WINDOW, RoundLines, TimeLeft, is_live, say
from ..results.report.runs_by_seed import spread
from ..results.report.tables import Table
from ..results.run_directory import LOCK, default_run_folder, folder_locked
from ..runtime.pools import pool_for
from .cells import Cell, Outcome, cells_of, run_cell
from .experiment import Experiment, swept_keys
from .grid_table import Comparison
from .processes import run_in_parallel, side_by_side, workers_of

AROUND = 6
"""Lines of a terminal around the rows of the table: its header, the bar, what was printed last."""


class LiveTable(Observer):
    """A table of all cells that fills as runs go on, above a bar over all rounds; use as a context manager.

    Rounds are read from the runs' folders, and what ended runs found is as the comparison has it. Of more
    rows than a terminal shows there is only the bar.
    """

    def __init__(self, cells: Sequence[Cell], console: Console, comparison: Comparison) -> None:
        self._cells = cells
        self._comparison = comparison
        self.ended()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(None, table_column=Column(ratio=1)),
            MofNCompleteColumn(),
            TimeLeft(),
            expand=True,
            speed_estimate_period=WINDOW,
        )
        total = sum(cell.config.rounds for cell in cells)
        self._task = self._bar.add_task(f"{len(cells)} runs, rounds", total=total)
        self.update()
        self._bar.advance(self._task, 0)  # from here on the time of a round is measured
        self._fits = len(self._rows()) < console.height - AROUND
        self._live = Live(console=console, transient=True, get_renderable=self.drawn)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def ended(self) -> None:
        """Take what the runs that have ended found, as they are compared now."""
        self._ended = self._comparison.summaries

    def update(self) -> None:
        """Read the number of rounds done, to be drawn."""
        self._rounds = {
            c.name: c.config.rounds if c.name in self._ended else c.rounds_done for c in self._cells
        }
        self._bar.update(self._task, completed=sum(self._rounds.values()))

    def on_round(self, result: RoundResult) -> None:
        self.update()

    def drawn(self) -> Group:
        """Return the table and the bar."""
        metrics = {one.compared_by for one in self._ended.values() if one}
        metric = metrics.pop() if len(metrics) == 1 else ""
        header = ["", "runs", "rounds", with_unit(metric) or "metric"]
        rows = [self._row(name, cells, metric) for name, cells in self._rows().items()]
        return Group(*([Table(header, rows).terminal()] if self._fits else []), self._bar)

    def _rows(self) -> dict[str, list[Cell]]:
        rows: dict[str, list[Cell]] = {}
        for cell in self._cells:
            rows.setdefault(cell.name.rpartition("-seed")[0], []).append(cell)
        return rows

    def _row(self, name: str, cells: Sequence[Cell], metric: str) -> list[str]:
        """Return a row's cells; its metric is named where the header does not name that of all rows."""
        ended = [self._ended[cell.name] for cell in cells if cell.name in self._ended]
        rounds = sum(self._rounds[cell.name] for cell in cells)
        total = sum(cell.config.rounds for cell in cells)
        values: dict[str, list[float]] = {}
        for one in ended:
            if one and (value := value_of(one)) is not None:
                values.setdefault(one.compared_by, []).append(value)
        found = (
            f"{spread(of, by)}{'' if by == metric else f' ({with_unit(by)})'}" for by, of in values.items()
        )
        failed = sum(one is None for one in ended)
        words = [*found, *([f"{failed} failed"] if failed else [])]
        return [name, f"{len(ended)}/{len(cells)}", f"{rounds}/{total}", ", ".join(words)]


def value_of(summary: Summary) -> float | None:
    """Return the metric by which runs are compared.

    It is that of the site left out, if one is; the clients' mean; or else the global model's value. That of a
    rare event is of all cases together.
    """
    left_out, by = summary.left_out, summary.compared_by
    return ((left_out and left_out.mean) or summary.main).get(by, (summary.pooled or {}).get(by))


def end_line(name: str, summary: Summary) -> str:
    """Return a line on a completed run, with its `value_of`."""
    by, value = summary.compared_by, value_of(summary)
    metric = f"  {by} {shown(by, value)}" if value is not None else ""
    return f"{name}: {number_of(summary.rounds, 'round')}{metric}  {summary.seconds:.1f} s"


def sweep_folder(config: RunConfig) -> Path:
    """Return the folder of a sweep's runs: new, empty, or a sweep's; for ``auto`` a new default folder.

    Raises
    ------
    UserError
        When the folder contains anything else.
    """
    if config.run_dir == "auto":
        return default_run_folder()
    folder = Path(config.run_dir)
    check_sweep_folder(folder)
    return folder


def check_sweep_folder(folder: Path) -> None:
    """Refuse a folder with other contents than a sweep.

    Raises
    ------
    UserError
        When it is neither new, empty nor a sweep's.
    """
    if not folder.exists() or (folder / EXPERIMENT).exists():
        return
    if not folder.is_dir() or not all(
        p.name == LOCK or p.name.endswith(UNFINISHED) for p in folder.iterdir()
    ):
        raise not_allowed("run-dir", str(folder), "a new or empty folder, or the folder of a sweep")


def runs_of(experiment: Experiment, configs: Sequence[RunConfig]) -> list[Cell]:
    """Return a sweep's runs with their folders, whether or not they exist.

    Raises
    ------
    UserError
        As `check_sweep_folder` and `Cell.check` do.
    """
    folder = Path(configs[0].run_dir)
    check_sweep_folder(folder)
    cells = cells_of(configs, swept_keys(experiment, configs), folder)
    for cell in cells:
        cell.check()
    return cells


@contextmanager
def lock_sweep_folder(folder: Path) -> Iterator[None]:
    """Create a sweep's folder if necessary, and lock it.

    Raises
    ------
    UserError
        When another process has the lock, or the folder cannot be written to.
    """
    with os_errors_as_user_errors("run-dir", f"write to {str(folder)!r}"):
        folder.mkdir(parents=True, exist_ok=True)
        with folder_locked(folder, "run-dir", beginning=EXPERIMENT):
            yield


def run_sweep(experiment: Experiment, configs: Sequence[RunConfig], folder: Path, console: Console) -> int:
    """Do the runs that are missing in the folder, and return the number of failed runs.

    Raises
    ------
    UserError
        When the folder is in use, or a cell's folder has a run of another configuration.
    """
    keys = swept_keys(experiment, configs)
    cells = cells_of(configs, keys, folder)
    with lock_sweep_folder(folder):
        for cell in cells:
            cell.check()
        given = {"dataset": RUN_KEYS["dataset"].default, **experiment.as_given()}  # another one up to 0.2
        write_atomically(folder / EXPERIMENT, json_text(given, indent=2) + "\n")
        comparison = Comparison(folder, keys, [cell.name for cell in cells])
        missing = []
        for cell in cells:
            if summary := cell.summary:
                comparison.add(cell.config, summary, name=cell.name)
            else:
                missing.append(cell)
        if len(missing) < len(cells):
            say(console, f"{len(cells) - len(missing)} of {len(cells)} runs are already done")
        failed = 0
        live = LiveTable(cells, console, comparison) if is_live(console) and missing else None
        try:
            with (
                live or nullcontext(),
                notices_once(),
                closing(_outcomes(missing, console, live)) as outcomes,
            ):
                for cell, (summary, problem) in outcomes:
                    row = comparison.add(cell.config, summary, problem, cell.name)
                    if live:
                        live.ended()
                    elif row:
                        say(console, end_line(cell.name, row))
                    if not row:
                        print(f"{cell.name} failed: {problem}", file=sys.stderr)
                        failed += 1
        finally:
            comparison.plot()
    comparison.table().show(console, comparison.title)
    for title, table in comparison.further_tables().items():
        table.show(console, title)
    for line in filter(None, [comparison.sentence, *comparison.privacy_together]):
        say(console, line)
    return failed


def _outcomes(
    cells: Sequence[Cell], console: Console, live: LiveTable | None
) -> Generator[tuple[Cell, Outcome]]:
    """Yield each cell's outcome as it ends."""
    parallel = side_by_side(cells)
    if parallel:
        configs = [cell.prepare() for cell in cells[:parallel]]
        tick = live.update if live else list
        with closing(run_in_parallel(configs, workers_of(cells), tick)) as outcomes:
            for number, outcome in outcomes:
                yield cells[number], outcome
    rest = cells[parallel:]
    pool = pool_for(rest[0].config, len(rest)) if rest else None
    try:
        for cell in rest:
            watch = live or RoundLines(cell.config, console, cell.name)
            yield cell, run_cell(cell.prepare(), pool, [watch])
    finally:
        if pool:
            pool.close()

"""The progress bar of parallel runs."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..records.metrics import shown
from ..records.summary import Summary
from ..results.progress import WINDOW
from .cells import Cell


class RoundsBar:
    """A progress bar over the rounds of all runs, read from their folders; use as a context manager."""

    def __init__(self, cells: Sequence[Cell], console: Console) -> None:
        self._cells = cells
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            speed_estimate_period=WINDOW,
        )
        total = sum(cell.config.rounds for cell in cells)
        self._task = self._bar.add_task(f"{len(cells)} runs, rounds", total=total)

    def __enter__(self) -> "RoundsBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self) -> None:
        """Read the number of rounds done and redraw."""
        self._bar.update(self._task, completed=sum(cell.rounds_done for cell in self._cells))


def end_line(name: str, summary: Summary) -> str:
    """Return a line on a completed run, with the metric that runs are compared by.

    It is that of the site left out, if one is; the clients' mean; or else the global model's value.
    """
    by, left_out = summary.compared_by, summary.left_out
    value = ((left_out and left_out.mean) or summary.main).get(by)
    metric = f"  {by} {shown(by, value)}" if value is not None else ""
    return f"{name}: {summary.rounds} rounds{metric}  {summary.seconds:.1f} s"

"""What is said of the rows of a sweep beyond means and deviations: nothing, unless an annex says it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ... import annexes
from ...config.run_config import RunConfig
from ...records.summary import Summary
from .runs_by_seed import Group, Marks, Sweep
from .tables import Table

if TYPE_CHECKING:
    from ..plotting.svg_figure import InlineFigure


class Verdicts:
    """What is said of a sweep; of a kind ``verdicts`` an annex brings another such class.

    Parameters
    ----------
    folder : Path
        The sweep's folder.
    keys : Sequence[str]
        The swept keys besides strategy, client, objective and seed.
    """

    columns: Sequence[str] = ()
    """Further columns of ``grid.csv``."""

    def __init__(self, folder: Path, keys: Sequence[str] = ()) -> None:
        self.folder = folder
        self.keys = keys

    def add(self, config: RunConfig, folder: Path, summary: Summary) -> None:
        """Take a run that has ended, with its folder."""

    def compare(
        self, groups: Sequence[Group], metric: str, datasets: Collection[str], at_end: bool = True
    ) -> Marks[int]:
        """Compare the complete runs of all rows, of such ``datasets``; what takes longer, ``at_end``."""
        return Marks()

    def values(self, number: int) -> dict[str, object]:
        """Return what `columns` say of a row that was compared."""
        return {}

    def tables(self, at_end: bool = True) -> Mapping[str, Table]:
        """Return what follows the table of rows that were compared, by title."""
        return {}

    def write(self) -> None:
        """Write further files into the folder, once all runs have ended."""

    def sections(self, sweep: Sweep, metric: str) -> tuple[Sequence[str], Sequence[Table]]:
        """Return sections of a sweep's page as HTML, and their tables for a paper, of rows compared."""
        return (), ()

    @staticmethod
    def figure(groups: Sequence[Group], metric: str, title: str) -> InlineFigure | None:
        """Return what is drawn of runs that have no curve by round, such as those that leave out a site."""
        return None


def verdicts() -> type[Verdicts]:
    """Return the class of an annex that is present, or else the one that says nothing."""
    return next(iter(annexes.brought("verdicts").values()), Verdicts)

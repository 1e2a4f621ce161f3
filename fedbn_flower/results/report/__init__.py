"""``report.html``: a self-contained page of a run, a sweep or a search, made from the files in its folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from csv import Error as CsvError
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import UserError, not_allowed
from ...core.files import csv_text, write_atomically

if TYPE_CHECKING:
    from ..comparisons.over_blocks import Ranking
    from ..plotting.svg_figure import InlineFigure

NAME = "report.html"
KINDS = "the folder of a run, a sweep or a search"


DAMAGES = (ArithmeticError, AttributeError, CsvError, LookupError, TypeError, ValueError, OSError)
"""What a damaged file makes its readers raise."""


@contextmanager
def damage_as_user_errors(key: str, folder: str) -> Iterator[None]:
    """Raise a UserError of one line, which begins with the key, for what a damaged folder of results
    raises.
    """
    try:
        yield
    except UserError:
        raise
    except DAMAGES as error:
        why = ascii(str(error))[1:-1][:200]
        found = f"{type(error).__name__}: {why}"
        raise UserError(f"{key}: {folder!r} cannot be read: a file in it is damaged ({found})") from error


def write_report(folder: Path, reference: Path | None = None) -> Path:
    """Write ``report.html`` into a folder of results and return its path.

    The folder may be of any version of this project; what it lacks is left out.

    Parameters
    ----------
    folder : Path
        The folder.
    reference : Path, optional
        That of the same run without privacy, with which a private one is compared.

    Raises
    ------
    UserError
        When the folder is not of a run, a sweep or a search, or the reference is not the same run.
    """
    with damage_as_user_errors("report", str(folder)):
        content = _page(folder, reference)
    write_atomically(folder / NAME, content)
    return folder / NAME


def begin_figures(folder: Path) -> None:
    """Have a run's figures drawn for its report, if another process draws them."""
    from ..plotting.drawer import DRAWER

    if DRAWER.get():
        from ..run_reader import Run
        from .run_page import run_figures

        run_figures(Run.read(folder))


def _page(folder: Path, reference: Path | None) -> str:
    if reference:
        from ..run_reader import Run
        from .compare_page import without_noise
        from .run_page import run_page

        run = Run.read(folder, "report")
        return run_page(run, without_noise(run, reference))
    if (folder / "grid.csv").exists():
        from .runs_by_seed import Sweep
        from .sweep_page import sweep_page

        return sweep_page(Sweep.read(folder))
    if (folder / "search.csv").exists():
        from .search_page import search_page

        return search_page(folder)
    if (folder / "config.json").exists():
        from ..run_reader import Run
        from .run_page import run_page

        return run_page(Run.read(folder, "report"))
    raise not_allowed("report", str(folder), KINDS)


def write_gain(folder: Path) -> None:
    """Write ``gain.csv`` of a sweep that has runs whose clients train alone: what those of others gain."""
    from ..comparisons.gain import GAIN_FILE, gain_rows, gains_of
    from .runs_by_seed import Sweep, common_metric

    with damage_as_user_errors("report", str(folder)):
        groups = Sweep.read(folder).groups
        rows = gain_rows(gains_of(groups, common_metric(groups)))
    if rows:
        write_atomically(folder / GAIN_FILE, csv_text(list(rows[0]), rows))


def sweep_figure(folder: Path) -> "InlineFigure":
    """Draw the main metric of a sweep's cells by round, from the sweep's folder."""
    from .runs_by_seed import Sweep, common_metric
    from .sweep_page import curves_figure

    sweep = Sweep.read(folder)
    title = " ".join(value for value in sweep.common.values() if value)
    settings = zip(*(run.where for run in sweep.runs), strict=True)
    where = ", ".join(values[0] for values in settings if len(set(values)) == 1)
    return curves_figure(sweep.groups, common_metric(sweep.groups), f"{title} {where}".strip())


def ranks_figure(ranking: "Ranking | None") -> "InlineFigure | None":
    """Draw the critical-difference diagram of three or more methods; None of others."""
    from .sweep_page import rank_figure

    return rank_figure(ranking)

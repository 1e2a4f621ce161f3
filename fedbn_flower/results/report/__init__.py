"""``report.html``: a self-contained page of a run, a sweep or a search, made from the files in its folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ... import annexes
from ...core.files import write_atomically
from ...core.stored import APP, RUN, SEARCH, SWEEP, checked_kind, damage_as_user_errors

if TYPE_CHECKING:
    from ..plotting.svg_figure import InlineFigure

NAME = "report.html"


def write_report(folder: Path, reference: Path | None = None, own: Sequence[str] = ()) -> Path:
    """Write ``report.html`` into a folder of results and return its path.

    The folder may be of any version of this project; what it lacks is left out.

    Parameters
    ----------
    folder : Path
        The folder.
    reference : Path, optional
        That of the same run without privacy, with which a private one is compared.
    own : Sequence[str]
        Names of one's own sections, for a run; see `sections_of_a_run`.

    Raises
    ------
    UserError
        When the folder is not of a run, a sweep, a search or a Flower app's run, the reference is not the
        same run, or a section of one's own fails.
    """
    with damage_as_user_errors("report", str(folder)):
        content = _page(folder, reference, own)
    write_atomically(folder / NAME, content)
    return folder / NAME


def begin_figures(folder: Path) -> None:
    """Have a run's figures drawn for its report, if another process draws them."""
    from ..plotting.drawer import DRAWER

    if DRAWER.get():
        from ..run_reader import Run
        from .sections.results import run_figures

        run_figures(Run.read(folder))


def _page(folder: Path, reference: Path | None, own: Sequence[str]) -> str:
    kinds = (RUN,) if reference else (RUN, APP) if own else (RUN, SWEEP, SEARCH, APP)
    kind = checked_kind(folder, "report", *kinds)
    if kind in (RUN, APP):
        from ..run_reader import EVERY_RUN, Run, with_reference
        from .run_page import run_page

        run = Run.read(folder, "report", EVERY_RUN)
        return run_page(with_reference(run, reference) if reference else run, own)
    if kind == SEARCH:
        return str(annexes.load("searches", "page", "report")(folder))
    from .runs_by_seed import Sweep
    from .sweep_page import sweep_page

    return sweep_page(Sweep.read(folder, "report"))


def sweep_figure(folder: Path) -> "InlineFigure":
    """Draw the main metric of a sweep's cells by round, from the sweep's folder."""
    from .runs_by_seed import Sweep, common_metric
    from .sweep_page import curves_figure, metric_by_round

    sweep = Sweep.read(folder, "report")
    title = " ".join(value for value in sweep.common.values() if value)
    settings = zip(*(run.where for run in sweep.runs), strict=True)
    where = ", ".join(values[0] for values in settings if len(set(values)) == 1)
    metric = metric_by_round(sweep.groups, common_metric(sweep.groups))
    return curves_figure(sweep.groups, metric, f"{title} {where}".strip())

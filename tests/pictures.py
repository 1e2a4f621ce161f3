"""Runs without pictures, which take half of a small one's time."""

from contextlib import nullcontext, suppress

import fedbn_flower.cli.report_commands  # its own write_report is the real one
from fedbn_flower.results import report, run_folder
from fedbn_flower.results.plotting import plots
from fedbn_flower.runtime import server_app

with suppress(ModuleNotFoundError):
    import fedbn_flower.inspection.page  # noqa: F401  its own class_counts, too


def draw_none(replace=setattr):
    """Have empty files written in place of a run's figures, and no report."""
    replace(plots, "save_figure", lambda figure, path: path.touch())
    replace(plots, "class_counts", lambda *_: None)
    replace(run_folder, "plot_curves", lambda folder: (folder / "curves.png").touch())
    replace(report, "write_report", lambda folder: folder / report.NAME)
    replace(server_app, "drawing_apart", nullcontext)  # a process that starts and has nothing to draw

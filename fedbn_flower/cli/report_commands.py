"""The commands that look at what runs have left: ``report`` and ``compare``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from ..core.errors import UserError, os_errors_told
from ..core.files import write_atomically
from ..results.plotting.plots import save_figure
from ..results.report import write_report
from ..results.report.compare_page import compare_page, costs, differences, groups_of, of_different_data
from ..results.report.groups import common_figure, figures_table, legend
from ..results.report.sweep_page import LINES, curves_figure
from ..results.run_directory import default_run_folder, prepare_run_folder
from ..results.terminal import fitted


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.split()[-1]}: {message}")


def report(arguments: Sequence[str]) -> int:
    """``report DIR ...``: write the page of each folder anew."""
    parser = _Parser("fedbn-sim report", description="Write report.html of runs, sweeps and searches anew.")
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path)
    for folder in parser.parse_args(arguments).folders:
        with os_errors_told("report", f"write to {str(folder)!r}"):
            print(write_report(folder))
    return 0


def compare(arguments: Sequence[str]) -> int:
    """``compare DIR DIR ... [--to DIR]``: tables on the terminal, and a page of it all in a new folder."""
    parser = _Parser("fedbn-sim compare", description="Put runs, sweeps and searches side by side.")
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path)
    parser.add_argument(
        "--to", metavar="DIR", type=Path, help="new folder for the page [a new one under runs/]"
    )
    told = parser.parse_args(arguments)
    groups = groups_of(told.folders)
    if len(groups) < 2:
        raise UserError(f"compare: {str(told.folders[0])!r} is one run; expected two at least")
    by, different = common_figure(groups), of_different_data(groups)
    tables = {
        legend(groups, by)[:-1]: figures_table(groups, by),
        "what differs": differences(groups),
        "what it took": costs(groups),
    }
    if told.to is None:
        folder = default_run_folder()
    else:
        prepare_run_folder(folder := told.to, "to")
    with os_errors_told("to", f"write to {str(folder)!r}"):
        write_atomically(folder / "compare.html", compare_page(groups))
        text = [f"## {title}\n\n{table.markdown()}" for title, table in tables.items()]
        text += [f"{different}\n"] if different else []
        write_atomically(folder / "compare.md", "\n".join(text))
        save_figure(
            curves_figure(groups[:LINES], by, "different data" * bool(different)), folder / "compare.png"
        )
    console = Console()
    for title, table in tables.items():
        console.print(fitted(table.terminal(title), console.width))
    if different:
        print(different)
    print(f"the page is {folder / 'compare.html'}")
    return 0

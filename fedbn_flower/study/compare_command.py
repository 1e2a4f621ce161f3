"""The command ``compare``, which compares the folders of runs, sweeps and searches."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..cli.argument_parser import Parser
from ..core.errors import UserError, os_errors_as_user_errors
from ..core.files import write_atomically
from ..records.metrics import spelt
from ..records.stored import damage_as_user_errors
from ..results.held_out import CASES
from ..results.plotting.plots import save_figure
from ..results.report.runs_by_seed import common_metric, legend, metrics_table
from ..results.report.sweep_page import LINES, curves_figure
from ..results.run_directory import default_run_folder, prepare_run_folder
from .compare_page import (
    compare_page,
    costs,
    data_warning,
    differences,
    held_out_of,
    in_common,
    privacy_together,
    read_groups,
)
from .comparisons.best_cells import Verdict
from .comparisons.gain import gains_of
from .comparisons.over_blocks import ranking
from .sections.all_metrics import side_by_side
from .sections.gain import gain_table
from .sweeps import RANKS, best_groups, pairs_table, rank_figure, rows


def compare(arguments: Sequence[str]) -> int:
    """Run ``compare DIR DIR ... [--metric NAME] [--pairs] [--to DIR]``: print tables, and write a page."""
    parser = Parser("fedbn-sim compare", description="Compare runs, sweeps and searches.")
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path)
    parser.add_argument(
        "--to", metavar="DIR", type=Path, help="new folder for the page [a new one under runs/]"
    )
    parser.add_argument("--metric", metavar="NAME", default="", help="[the main metric that all runs have]")
    parser.add_argument("--pairs", action="store_true", help="a table of the differences of all pairs, too")
    options = parser.parse_args(arguments)
    with damage_as_user_errors("compare", ", ".join(map(str, options.folders))):
        return _compare(options)


def _compare(options: argparse.Namespace) -> int:
    groups = read_groups(options.folders)
    if len(groups) < 2:
        raise UserError(f"compare: {str(options.folders[0])!r} is one run; expected at least two")
    metric = common_metric(groups, options.metric)
    warning, notes = data_warning(groups), [in_common(groups), *privacy_together(groups)]
    if warning and options.pairs:
        raise UserError(f"pairs: {warning}")
    told = Verdict() if warning else best_groups(groups, metric)
    pairs = pairs_table(groups, metric, told) if options.pairs else None
    gains = [] if warning else gains_of(groups, metric)
    tables = {
        legend(groups, metric)[:-1]: metrics_table(groups, metric, told=told),
        **({"all pairs": pairs} if pairs else {}),
        **({} if warning else side_by_side(groups, metric)),
        **({f"gain over training alone, {spelt(metric)}": gain_table(gains)} if gains else {}),
        **({ranks.title: ranks.table()} if (ranks := ranking(rows(groups), metric)) else {}),
        **({f"{CASES} by site": found} if (found := held_out_of(groups)) else {}),
        "differences": differences(groups),
        "costs": costs(groups),
    }
    if options.to is None:
        folder = default_run_folder()
    else:
        prepare_run_folder(folder := options.to, "to")
    with os_errors_as_user_errors("to", f"write to {str(folder)!r}"):
        write_atomically(folder / "compare.html", compare_page(groups, metric, gains, pairs))
        text = [f"## {title}\n\n{table.markdown()}" for title, table in tables.items()]
        text += [f"{line}\n" for line in (warning, *notes) if line]
        write_atomically(folder / "compare.md", "\n".join(text))
        if not warning:
            save_figure(curves_figure(groups[:LINES], metric), folder / "compare.png")
        if figure := rank_figure(ranks):
            save_figure(figure, folder / RANKS)
    console = Console(emoji=False)
    for title, table in tables.items():
        table.show(console, title)
    for line in (warning, *notes):
        if line:
            print(line)
    print(f"the page is {folder / 'compare.html'}")
    return 0

"""The commands ``report``, ``compare``, ``export`` and ``release``, which read the folders of runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..api.export import ENDINGS, FORMATS
from ..api.result import export_model
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from ..core.files import write_atomically
from ..records.metrics import spelt
from ..records.stored import RUN, SWEEP, checked_kind, damage_as_user_errors
from ..results.comparisons.gain import gains_of
from ..results.comparisons.held_out import CASES
from ..results.plotting.plots import save_figure
from ..results.release import release as write_release
from ..results.report import write_report
from ..results.report.compare_page import (
    compare_page,
    costs,
    data_warning,
    differences,
    held_out_of,
    in_common,
    privacy_together,
    read_groups,
)
from ..results.report.html import FORMATS as FIGURES
from ..results.report.html import collected, write_figures
from ..results.report.methods import Study, methods, model_card
from ..results.report.run_page import run_page
from ..results.report.runs_by_seed import (
    Sweep,
    best_groups,
    common_metric,
    legend,
    metrics_table,
    pairs_table,
    ranking_of,
)
from ..results.report.sections.all_metrics import side_by_side
from ..results.report.sections.gain import gain_table
from ..results.report.sections_of_a_run import own_sections
from ..results.report.sweep_page import LINES, RANKS, curves_figure, rank_figure, sweep_page
from ..results.report.tables import Table
from ..results.run_directory import default_run_folder, prepare_run_folder
from ..results.run_reader import Run
from .argument_parser import Parser

IN_WORDS = {"methods": methods, "model-card": model_card}
"""What ``export --to`` writes of a run in words."""


def report(arguments: Sequence[str]) -> int:
    """Run ``report DIR ... [--reference DIR] [--section NAMES]``: rewrite the report of each folder."""
    parser = Parser("fedbn-sim report", description="Rewrite report.html of runs, sweeps and searches.")
    parser.add_argument("folders", metavar="DIR", nargs="+", type=Path)
    parser.add_argument(
        "--reference",
        metavar="DIR",
        type=Path,
        help="the same run without privacy, to say what its noise costs",
    )
    parser.add_argument(
        "--section",
        metavar="FILE.py:NAME,...",
        help="functions of a run that yield the HTML of a section of their own",
    )
    options = parser.parse_args(arguments)
    own = () if options.section is None else own_sections(options.section)
    for folder in options.folders:
        with os_errors_as_user_errors("report", f"write to {str(folder)!r}"):
            print(write_report(folder, options.reference, own))
    return 0


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
    told = None if warning else best_groups(groups, metric)
    pairs = pairs_table(groups, metric, told) if told and options.pairs else None
    gains = [] if warning else gains_of(groups, metric)
    tables = {
        legend(groups, metric)[:-1]: metrics_table(groups, metric, comparable=not warning, told=told),
        **({"all pairs": pairs} if pairs else {}),
        **({} if warning else side_by_side(groups, metric)),
        **({f"gain over training alone, {spelt(metric)}": gain_table(gains)} if gains else {}),
        **({ranks.title: ranks.table()} if (ranks := ranking_of(groups, metric)) else {}),
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


def export(arguments: Sequence[str]) -> int:
    """Run ``export DIR [--format NAME] [--client CLIENT] [--to FILE]``: write a run's model as a file.

    With ``--to methods`` or ``--to model-card`` it writes the run or the sweep in words, ``DIR/methods.md``;
    with ``--figures`` the report's figures, with ``--table`` columns of its table.
    """
    parser = Parser("fedbn-sim export", description="Write a run's model, or what a paper needs of it.")
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--format", choices=FORMATS, help="[onnx]")
    parser.add_argument("--client", help="a client's model, by number or name [the aggregated model]")
    parser.add_argument(
        "--to",
        metavar="FILE",
        type=Path,
        help="[DIR/model.onnx or DIR/model.pt]; methods or model-card for a text in DIR; the folder of "
        "--figures [DIR/figures]; the file of --table, .tex, .md or .csv [DIR/table.tex]",
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--figures", choices=FIGURES, help="write each figure of the report as a file")
    either.add_argument(
        "--table", metavar="COLUMN,...", help="write these columns of the table of a sweep, or of sites"
    )
    parser.add_argument("--trust-code", choices=("true", "false"), default="false", help="run code of DIR")
    options = parser.parse_args(arguments)
    if str(options.to) in IN_WORDS or options.figures or options.table is not None:
        for key in ("client", "format"):
            if given := getattr(options, key):
                raise not_allowed(key, given, "none with methods, model-card, figures or table")
        with damage_as_user_errors("export", options.folder):
            paths = list(_written(options))
        print(*paths, sep="\n")
        return 0
    client = int(options.client) if (options.client or "").isdecimal() else options.client
    form = options.format or "onnx"
    path = options.to or options.folder / f"model{ENDINGS[form][0]}"
    if path.suffix.lower() not in ENDINGS[form]:
        files = f"a file that ends in {', '.join(ENDINGS[form])} with format {form!r}"
        raise not_allowed("to", str(path), f"one of {', '.join(IN_WORDS)}, or {files}")
    export_model(options.folder, path, form, client, trust_code=options.trust_code == "true")
    print(path)
    return 0


def _written(options: argparse.Namespace) -> list[Path]:
    """Write what a paper needs of a run or a sweep, and return the files."""
    folder: Path = options.folder
    reader = Sweep if checked_kind(folder, "export", RUN, SWEEP) == SWEEP else Run
    found = reader.read(folder, "export")
    if options.figures:
        to = options.to or folder / "figures"
        with collected() as figures:
            sweep_page(found) if isinstance(found, Sweep) else run_page(found)
        with os_errors_as_user_errors("to", f"write to {str(to)!r}"):
            to.mkdir(parents=True, exist_ok=True)
            return write_figures(figures, to, options.figures)
    path = folder / f"{options.to}.md"
    if options.table is not None:
        path = options.to or folder / "table.tex"
        forms = {".tex": Table.latex, ".md": Table.markdown, ".csv": Table.csv}
        if path.suffix not in forms:
            raise not_allowed("to", str(path), f"a file called {', '.join(forms)}, with table")
        table = Study.of(found).results
        text = forms[path.suffix](table.of_columns(options.table.split(",")))
    else:
        text = IN_WORDS[str(options.to)](found)
    with os_errors_as_user_errors("to", f"write to {str(path)!r}"):
        write_atomically(path, text)
    return [path]


def release(arguments: Sequence[str]) -> int:
    """Run ``release DIR --to DIR``: write what may be published of a private run into a new folder."""
    parser = Parser("fedbn-sim release", description="Write what may be published of a private run.")
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--to", metavar="DIR", type=Path, required=True, help="new folder")
    options = parser.parse_args(arguments)
    print(write_release(options.folder, options.to))
    return 0

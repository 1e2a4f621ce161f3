"""The command ``export``: a run's model as a file, or what a paper needs of a run."""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import annexes
from ..api.result import export_model
from ..cli.argument_parser import Parser
from ..core.errors import not_allowed, os_errors_as_user_errors
from ..core.files import write_atomically
from ..core.stored import RUN, SWEEP, checked_kind, damage_as_user_errors
from ..job.what_is_learnt import OWN_ROWS
from ..records.summary import Summary
from ..results.manifest import read_manifest
from ..results.plotting.svg_figure import InlineFigure
from ..results.report.html import collected
from ..results.report.results_table import results_table
from ..results.report.run_page import run_page
from ..results.report.runs_by_seed import Sweep
from ..results.report.sweep_page import sweep_page
from ..results.report.tables import Table
from ..results.run_reader import Run
from .model import ENDINGS, FORMATS

NOWHERE = "of the run, which its folder does not hold"
"""Where these are in the folder of an old version, or of an own kind of data."""
WHERE_NOT = ", which no run folder has; with normalize=true summary.json does"
OF_A_TABLE = re.compile(r"\d+ columns?: ")
FIGURES = ("pdf", "svg", "png")
"""The forms of figures as files."""


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
    if str(options.to) in annexes.names_of("texts") or options.figures or options.table is not None:
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
        raise not_allowed("to", str(path), f"one of {', '.join(annexes.names_of('texts'))}, or {files}")
    with damage_as_user_errors("export", options.folder):
        expected = list(_expected(options.folder))
    export_model(options.folder, path, form, client, trust_code=options.trust_code == "true")
    print(path)
    print(*expected, sep="\n", end="\n" * bool(expected), file=sys.stderr)
    return 0


def _expected(folder: Path) -> Iterator[str]:
    """Yield what the inputs of the file are, and by what numbers are standardised."""
    manifest = read_manifest(folder, "export")
    learnt = [str(note["text"]) for note in manifest.get("learnt", ()) if note["row"] == "inputs"]
    inputs = [text for text in learnt if not text.startswith("numbers are ")]  # see below
    yield from (f"inputs: {text}" for text in inputs)
    if manifest.get("normalize"):
        summary = Summary.read(folder, "export")
        where = "in 'normalization' of summary.json" if summary and summary.normalization else NOWHERE
        yield f"inputs: standardised, by the mean and deviation {where}"
    elif OF_A_TABLE.match("".join(inputs[:1])):
        by = next((text for text in learnt if text not in inputs), OWN_ROWS)
        yield f"inputs: {by}{WHERE_NOT if by == OWN_ROWS else ''}"


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
        table = results_table(found)
        text = forms[path.suffix](table.of_columns(options.table.split(",")))
    else:
        text = annexes.load("texts", str(options.to))(found)
    with os_errors_as_user_errors("to", f"write to {str(path)!r}"):
        write_atomically(path, text)
    return [path]


def write_figures(figures: dict[str, InlineFigure], folder: Path, form: str) -> list[Path]:
    """Write figures into a folder, each as one file of a form of `FIGURES`, and return the paths."""
    paths = []
    for name, figure in figures.items():
        paths.append(path := folder / f"{name}.{form}")
        write_atomically(path, figure.as_file(form))
    return paths

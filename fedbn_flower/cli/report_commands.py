"""The command ``report``, which reads the folders of runs."""

from collections.abc import Sequence
from pathlib import Path

from ..core.errors import os_errors_as_user_errors
from ..results.report import write_report
from ..results.report.sections_of_a_run import own_sections
from .argument_parser import Parser


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

"""The command ``inspect``: look at a run's data and their division before anything is trained."""

from argparse import SUPPRESS
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from ..cli.argument_parser import Parser
from ..cli.parser import Job, parse_command_line
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from ..core.files import write_atomically
from ..job.inputs import inputs_of
from ..results.progress import waiting
from ..results.report.tables import Table
from ..results.run_directory import default_run_folder, prepare_run_folder
from .page import MAX_LISTED, PAGE, Inspection, inspect_page


def inspect(arguments: Sequence[str]) -> int:
    """Run ``inspect [DATA] [--to DIR] [--KEY VALUE ...]``: print tables, and write a page into a new folder.

    Raises
    ------
    UserError
        For a flag or value that a run would not take, several runs, or data without examples.
    """
    parser = Parser(
        "fedbn-sim inspect",
        usage="%(prog)s [DATA] [--to DIR] [--KEY VALUE ...]",
        description="Look at the data and their division, with the flags of a run (see fedbn-sim --help). "
        "DATA is that of --dataset.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--to", metavar="DIR", type=Path, help="new folder for the page [a new one under runs/]"
    )
    parser.add_argument("--run-dir", help=SUPPRESS)
    first = [] if not arguments or arguments[0].startswith("-") else ["--dataset"]
    options, of_run = parser.parse_known_args([*first, *arguments])
    if options.run_dir:
        raise UserError("run-dir: inspect runs nothing; --to names the folder of its page")
    job = parse_command_line(of_run)
    if not isinstance(job, Job) or job.sweep:
        raise UserError("inspect: one run's data are looked at, not those of a sweep or a search")
    (config,) = job.configs
    console = Console(emoji=False)
    with waiting(console, "reading data"):
        inputs = inputs_of(config)
        if not inputs.dataset.has_examples:
            raise not_allowed("dataset", config.dataset, "one with examples: SuperNodes keep their data")
        if options.to:
            prepare_run_folder(options.to, "to")
        found = Inspection(inputs)
        text = inspect_page(found)
    folder = options.to or default_run_folder()
    with os_errors_as_user_errors("to", f"write to {str(folder)!r}"):
        write_atomically(folder / PAGE, text)
    for line in found.warnings:
        print(line)
    facts = Table(["data", ""], [[name, value] for name, value in found.facts().items()], words=2)
    tables = {"": found.learnt(), "data": facts, "clients": found.clients()}
    if found.features:
        features = found.feature_table()
        tables["features"] = replace(features, rows=features.rows[:MAX_LISTED])
    for title, table in tables.items():
        table.show(console, title)
    for what, count in (("clients", len(found.names)), ("features", len(found.features))):
        if count > MAX_LISTED:
            print(f"the first {MAX_LISTED} of {count} {what}")
    print(f"the page is {folder / PAGE}")
    return 0

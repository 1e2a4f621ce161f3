"""The command ``ledger``: what was spent of a site's data, by run."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..core.errors import UserError, not_allowed
from ..core.text import visible
from ..privacy.accounts import check_installed
from ..site.ledger import ENDING, FOLDER, Entry, SiteLedger, epsilon_of
from .argument_parser import Parser


def ledger(arguments: Sequence[str]) -> int:
    """Run ``ledger DIR [--delta D]``: print what the ledgers in a node's ``state-dir`` hold."""
    parser = Parser("fedbn-sim ledger", description="Show what was spent of a site's data, by run.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="the state-dir of a SuperNode")
    parser.add_argument("--delta", type=float, help="for which epsilon is shown [that of the last answer]")
    options = parser.parse_args(arguments)
    check_installed("ledger")
    if options.delta is not None and not 0 < options.delta < 1:
        raise not_allowed("delta", options.delta, "a number in (0, 1)")
    paths = sorted((options.folder / FOLDER).glob(f"*{ENDING}"))
    if not paths:
        raise UserError(f"ledger: no ledger in {str(options.folder / FOLDER)!r}; name a node's state-dir")
    console = Console(soft_wrap=True, emoji=False)
    for path in paths:
        if entries := SiteLedger(path).entries():
            console.print(_table(path.stem, entries, options.delta or entries[-1].delta))
    return 0


def _notion(entry: Entry) -> str:
    return f"{entry.notion} by {visible(entry.unit)!r}" if entry.unit else entry.notion


def _table(client: str, entries: Sequence[Entry], delta: float) -> Table:
    """Return a table of a ledger: a row for each run, one for all."""
    table = Table(title=escape(f"{client}, delta {delta:g}"))
    for name in ("run", "dp", "noise", "answers", "epsilon"):
        table.add_column(name, no_wrap=name != "dp", justify="left" if name in ("run", "dp") else "right")
    for run in dict.fromkeys(entry.run for entry in entries):
        of_run = [entry for entry in entries if entry.run == run]
        notions = ", ".join(dict.fromkeys(map(_notion, of_run)))
        noises = ", ".join(dict.fromkeys(f"{entry.noise:.4g}" for entry in of_run))
        words = (escape(visible(run)), escape(notions), noises)
        table.add_row(*words, str(len(of_run)), f"{epsilon_of(of_run, delta):.3f}")
    table.add_section()
    table.add_row("all runs", "", "", str(len(entries)), f"{epsilon_of(entries, delta):.3f}")
    return table

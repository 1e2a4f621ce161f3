"""The commands ``runs`` and ``watch``."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..cli.argument_parser import Parser
from ..core.errors import not_allowed
from ..core.text import number_of
from .index import Index
from .query import FORM, Query
from .run_table import table_of

HERE = Path("runs")
"""Where runs are by default: see `run_directory.default_run_folder`."""


def runs(arguments: Sequence[str]) -> int:
    """Run ``runs [DIR] [--where FILTER] [--sort KEY]``: print the table of the runs below a folder."""
    parser = Parser("fedbn-sim runs", description="A table of all runs below a folder.")
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?", default=HERE, help=f"[{HERE}]")
    parser.add_argument("--where", metavar="FILTER", default="", help=FORM.replace("%", "%%"))
    parser.add_argument("--sort", metavar="KEY", default="", help="KEY:down for the largest first")
    options = parser.parse_args(arguments)
    index = index_of(options.folder, "runs")
    found = index.chosen(options.where, options.sort)
    console = Console(emoji=False)
    asked = (options.sort.removesuffix(":down"), *sorted(Query.parse(options.where).keys))
    if found:
        table_of(found, *asked).show(console)
    chosen = "" if len(found) == len(index.entries) else f" of {number_of(len(index.entries), 'run')}"
    print(f"{len(found)}{chosen}" if chosen else number_of(len(found), "run"))
    for why in index.damaged.values():
        print(why)
    return 0


def index_of(folder: Path, key: str) -> Index:
    """Return the runs below a folder.

    Raises
    ------
    UserError
        When it is no folder; the message begins with the key.
    """
    if not folder.is_dir():
        raise not_allowed(key, str(folder), "a folder with the folders of runs")
    index = Index(folder, key)
    index.refresh()
    return index

"""The commands ``runs`` and ``watch``."""

import ipaddress
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from ..cli.argument_parser import Parser
from ..core.errors import UserError, not_allowed, os_errors_as_user_errors
from ..core.text import number_of
from .index import DOWN, Index, standing_of
from .query import FORM, Query
from .run_table import table_of

LOOPBACK = "127.0.0.1"
HERE = Path("runs")
"""Where runs are by default: see `run_directory.default_run_folder`."""


def runs(arguments: Sequence[str]) -> int:
    """Run ``runs [DIR] [--where FILTER] [--sort KEY]``: print the table of the runs below a folder."""
    parser = _parser("runs", "A table of all runs below a folder.")
    parser.add_argument("--where", metavar="FILTER", default="", help=FORM.replace("%", "%%"))
    parser.add_argument("--sort", metavar="KEY", default="", help="KEY:down for the largest first")
    options = parser.parse_args(arguments)
    index = index_of(options.folder, "runs")
    found = index.chosen(options.where, options.sort)
    if found:
        asked = options.sort.removesuffix(DOWN), *sorted(Query.parse(options.where).keys)
        table_of(found, *asked).show(Console(emoji=False))
    print(f"{len(found)} of {number_of(len(index.entries), 'run')}", *index.damaged.values(), sep="\n")
    return 0


def watch(arguments: Sequence[str]) -> int:
    """Run ``watch [DIR] [--consortium DIR] [--port N] [--host H --password-file FILE]`` until Ctrl-C.

    It serves a page of the runs below a folder, and of a consortium, if it has or is given one.
    """
    options = watch_parser().parse_args(arguments)
    password = _password(options.password_file, options.host)
    if not 0 <= options.port < 1 << 16:
        raise not_allowed("port", options.port, "0 to 65535")
    index = index_of(options.folder, "watch")
    standing = standing_of(options.consortium, options.folder)
    if find_spec("bokeh") is None:
        raise UserError("watch: needs another package: pip install 'fedbn-flower[watch]'")
    from .server import Server

    with Server(index, options.host, options.port, password, standing) as server:
        print(f"{number_of(len(index.entries), 'run')}: {server.address}\nCtrl-C ends it", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def watch_parser() -> Parser:
    """Return the parser of ``watch``."""
    parser = _parser("watch", "A page that follows all runs below a folder.")
    parser.add_argument("--consortium", metavar="DIR", type=Path, help="its folder [DIR, if it is one]")
    parser.add_argument("--port", type=int, default=0, help="[a free one]")
    parser.add_argument("--host", default=LOOPBACK, help=f"[{LOOPBACK}]; another needs a password")
    parser.add_argument("--password-file", metavar="FILE", type=Path, help="its first line is the password")
    return parser


def _parser(name: str, what: str) -> Parser:
    parser = Parser(f"fedbn-sim {name}", description=what)
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?", default=HERE, help=f"[{HERE}]")
    return parser


def _password(path: Path | None, host: str) -> str:
    """Return the password of a file; none is needed where only this machine reaches the page."""
    if path is None:
        if not is_loopback(host):
            raise not_allowed("host", host, f"{LOOPBACK}, or another with --password-file FILE")
        return ""
    with os_errors_as_user_errors("password-file", f"read {str(path)!r}"):
        lines = path.read_text().splitlines()
    if not lines or not lines[0]:
        raise UserError(f"password-file: {str(path)!r} has no password in its first line")
    return lines[0]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


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

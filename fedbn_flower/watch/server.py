"""The server of the pages: whoever has the token in the address sees the runs below one folder."""

import base64
import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isnan
from pathlib import PurePosixPath
from threading import Lock
from typing import Any

import numpy as np
from bokeh.resources import Resources

from ..core.errors import UserError, os_errors_as_user_errors
from ..core.files import csv_lines, json_text
from ..core.ground.columns import GLOBAL, POOLED
from ..core.stored import damage_as_user_errors
from ..records.metrics import spelt
from ..results.report.html import STYLE
from .curves import MOST_LINES, ROUND, Federation, Line, Sites, csv_of, leading_column
from .figures import curves, data_of, has_legend, heat_map, swatches
from .index import Entry, Index, Standing
from .page import (
    ASSETS,
    Asked,
    caption_of,
    difference_page,
    drawn_lines,
    federation_page,
    metric_of,
    real_differences,
    runs_page,
    runs_table,
    standing_tables,
)
from .run_page import facts, rounds, run_page, sites

LONGEST = 10_000
"""Bytes of a note."""
NOTED = {"starred": bool, "note": str}
"""What is said of a run."""
REFUSED = "Only GET and POST of the address with the token that fedbn-sim watch has printed are answered."
KEPT = 3
"""Columns of `Sites` that are kept: those of one page, its curves, table and heat map."""
STANDING = "standing"
"""The part of a page with a consortium's tables."""


class Server(ThreadingHTTPServer):
    """Serve the pages of an index of runs.

    Parameters
    ----------
    index : Index
        The runs.
    host : str
        The address to listen at.
    port : int
        The port; 0 for a free one.
    password : str, optional
        Asked for beside the token, whatever the user's name.
    standing : Standing, optional
        Of a consortium, which then has a page.

    Raises
    ------
    UserError
        When it cannot listen there.
    """

    daemon_threads = True

    def __init__(
        self, index: Index, host: str, port: int, password: str = "", standing: Standing | None = None
    ) -> None:
        self.index, self.password, self.standing = index, password, standing
        self.token, self.lock = secrets.token_urlsafe(24), Lock()
        self.pages = PAGES | (pages_of(standing) if standing else {})
        self.column = lru_cache(KEPT)(lambda folder, metric: Sites(folder / "clients.csv", metric))
        if ":" in host:
            self.address_family = socket.AF_INET6
        with os_errors_as_user_errors("port", f"listen at port {port} of {host}"):
            super().__init__((host, port), Handler)

    @property
    def address(self) -> str:
        """What to open in a browser."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/{self.token}/"

    def stamp(self, name: str) -> int:
        """Return another number whenever a page may have changed."""
        return self.standing.stamp if self.standing and name == STANDING else self.index.stamp

    def federation(self, entry: Entry, metric: str) -> Federation:
        """Return a run's sites, with one metric of theirs."""
        with self.lock:
            return Federation(entry, self.column(entry.run.folder, metric).read())


class Handler(BaseHTTPRequestHandler):
    """Answer one request. Runs are found by their names in the index: no path is made of what is asked."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *arguments: Any) -> None:
        """Say nothing: the terminal is the user's."""

    def do_GET(self) -> None:
        self._answer(self.server.pages)

    def do_POST(self) -> None:
        self._answer({"note": _note})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request of a page, as another method, like an address without the token."""
        self._send(HTTPStatus.FORBIDDEN, REFUSED)

    def _answer(self, pages: "Mapping[str, Page]") -> None:
        path, _, query = self.path.partition("?")
        token, _, name = path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._send(HTTPStatus.FORBIDDEN, REFUSED)
        elif not self._knows_password():
            self._send(HTTPStatus.UNAUTHORIZED, "The password is asked for.")
        elif name not in pages:
            self._send(HTTPStatus.NOT_FOUND, "There is no such page.")
        else:
            self._send_page(name, pages[name], query)

    def _send_page(self, name: str, page: "Page", query: str) -> None:
        index = self.server.index
        try:
            with damage_as_user_errors("watch", index.folder.name):
                index.refresh()
                tag, asked = f'"{self.server.stamp(name)}"', Asked.read(query)
                if missing := [run for run in (*asked.run, asked.of) if run and run not in index.entries]:
                    why = index.damaged.get(missing[0], f"The folder of {missing[0]} has gone.")
                    self._send(HTTPStatus.NOT_FOUND, why)
                elif self.headers.get("If-None-Match") == tag:
                    self._send(HTTPStatus.NOT_MODIFIED, "", tag=tag)
                else:
                    self._send(HTTPStatus.OK, page(self, asked), name, tag)
        except UserError as error:
            self._send(HTTPStatus.BAD_REQUEST, str(error))

    def _knows_password(self) -> bool:
        if not self.server.password:
            return True
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        with suppress(ValueError):
            password = base64.b64decode(given).partition(b":")[2]
            return kind == "Basic" and hmac.compare_digest(password, self.server.password.encode())
        return False

    def _send(self, status: HTTPStatus, text: str, name: str = "", tag: str = "") -> None:
        content = text.encode()
        kind = ASSETS["kinds"].get(
            PurePosixPath(name).suffix, "text/html" if status == HTTPStatus.OK else "text/plain"
        )
        headers = {
            **ASSETS["headers"],
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
        }
        headers["Cache-Control"] = "private, max-age=86400" if name == "bokeh.js" else "no-store"
        headers |= {"ETag": tag} if tag else {}
        if status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = 'Basic realm="fedbn-sim watch"'
        if status >= HTTPStatus.BAD_REQUEST:
            headers["Connection"] = "close"  # what was posted may not have been read
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(content)


Page = Callable[[Handler, Asked], str]


def _entry(handler: Handler, asked: Asked) -> Entry:
    """Return the run that a page is of."""
    return handler.server.index.entries[asked.of]


def _lines(handler: Handler, asked: Asked) -> tuple[list[Line], str, str]:
    """Return the curves of a page, their metric and the caption."""
    index = handler.server.index
    entries = [index.entries[asked.of]] if asked.of else index.chosen(asked.where, asked.sort)
    metric, lines, of = metric_of(asked, entries), drawn_lines(asked, entries), len(entries)
    if asked.of and asked.sites and asked.axis == ROUND:
        federation = handler.server.federation(entries[0], metric.removeprefix(POOLED).removeprefix(GLOBAL))
        lines, of = [*lines, *federation.lines(MOST_LINES - 1)], 1 + len(federation.names)
    return lines, metric, caption_of(asked, lines, metric, of)


def _curves(handler: Handler, asked: Asked) -> str:
    """Return a picture of curves; of one whose axes and colours the page has already, only the data."""
    lines, metric, caption = _lines(handler, asked)
    data, look = data_of(lines, asked.smooth), (asked.axis, metric, (asked.logx, asked.logy), asked.dark)
    shape = hashlib.sha256(repr((look, has_legend(data))).encode()).hexdigest()[:16]
    item = None if handler.headers.get("X-Shape") == shape else curves(data, *look)
    return json_text({"item": item, "data": data, "shape": shape, "caption": caption})


def _curves_csv(handler: Handler, asked: Asked) -> str:
    return csv_of(*_lines(handler, asked)[:2], asked.axis)


def _heat(handler: Handler, asked: Asked) -> str:
    metric, federation = _by_site(handler, asked)
    item = heat_map(federation.grid(metric, np.float32), [*federation.names.values()], metric, asked.dark)
    known = "; a gap is no answer" if federation.sites.answered else ": nothing is known of single sites"
    return json_text({"item": item, "caption": f"{spelt(metric)} by site and round{known}"})


def _heat_csv(handler: Handler, asked: Asked) -> str:
    metric, federation = _by_site(handler, asked)
    grid = federation.grid(metric)
    sites = zip(federation.names.values(), grid, strict=True)
    rows = ([name, *("" if isnan(v) else v for v in values.tolist())] for name, values in sites)
    return csv_lines(["site", *map(str, range(1, grid.shape[1] + 1))], rows)


def _by_site(handler: Handler, asked: Asked) -> tuple[str, Federation]:
    """Return of what a heat map is, and the sites."""
    entry = _entry(handler, asked)
    return (metric := leading_column(entry, asked.heat)), handler.server.federation(entry, metric)


def _sites(handler: Handler, asked: Asked) -> str:
    entry = _entry(handler, asked)
    colours = swatches([line.name for line in _lines(handler, asked)[0]])
    return sites(handler.server.federation(entry, leading_column(entry)), colours)


def _note(handler: Handler, asked: Asked) -> str:
    """Keep what the reader says of a run."""
    length = handler.headers.get("Content-Length", "0")
    if not length.isdecimal() or int(length) > LONGEST:
        raise UserError(f"note: {length} bytes are not allowed; expected at most {LONGEST}")
    with suppress(json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        match json.loads(handler.rfile.read(int(length))):
            case {"run": str(name), **said} if name in handler.server.index.entries:
                kept = {key: said[key] for key, kind in NOTED.items() if isinstance(said.get(key), kind)}
                handler.server.index.write_notes(name, kept)
                return ""
    raise UserError("note: expected JSON with the name of a run that there is")


def pages_of(standing: Standing) -> "dict[str, Page]":
    """Return the pages of a consortium."""
    return {
        "federation": lambda handler, asked: federation_page(standing),
        STANDING: lambda handler, asked: standing_tables(standing),
    }


PAGES: dict[str, Page] = {
    "": lambda handler, asked: runs_page(handler.server.index, asked, handler.server.standing),
    "table": lambda handler, asked: runs_table(handler.server.index, asked),
    "real": lambda handler, asked: real_differences(handler.server.index, asked),
    "difference": lambda handler, asked: difference_page(handler.server.index, asked),
    "curves.json": _curves,
    "curves.csv": _curves_csv,
    "run": lambda handler, asked: run_page(_entry(handler, asked), asked),
    "facts": lambda handler, asked: facts(_entry(handler, asked)),
    "rounds": lambda handler, asked: rounds(_entry(handler, asked)),
    "sites": _sites,
    "heat.json": _heat,
    "heat.csv": _heat_csv,
    "bokeh.js": lambda handler, asked: str(Resources("inline", components=["bokeh"]).js_raw[0]),
    "watch.js": lambda handler, asked: str(ASSETS["script"]),
    "watch.css": lambda handler, asked: STYLE + ASSETS["styles"],
}
"""What may be asked for, by the address's last part."""

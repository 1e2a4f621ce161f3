"""Build a self-contained HTML page: text, tables, SVG figures and style sheet; no network.

It is complete without its script, with which tables are sorted and figures tell values under the mouse.

And write every figure of a report as a file of its own, as journals ask for them.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...core.text import visible

if TYPE_CHECKING:
    from ..plotting.drawer import DrawnApart
    from ..plotting.svg_figure import InlineFigure

STYLE, SCRIPT = tomllib.loads(Path(__file__).with_name("style.toml").read_text()).values()
_COLLECTED: "ContextVar[dict[str, InlineFigure] | None]" = ContextVar("figures", default=None)


def file_name(caption: str) -> str:
    """Return a figure's name, in a page and as a file: letters, digits and hyphens of its caption."""
    return "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in caption.lower()).split())


@contextmanager
def collected() -> "Iterator[dict[str, InlineFigure]]":
    """Collect the figures by name that pages show meanwhile."""
    found: dict[str, InlineFigure] = {}
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)


def collect(caption: str, figure: "InlineFigure | DrawnApart") -> None:
    """Note a figure of a page, where they are collected; of equal names the first is kept."""
    found = _COLLECTED.get()
    if found is not None:  # no other process draws for the page of a run that is over
        found.setdefault(file_name(caption), cast("InlineFigure", figure))


PART = r"""[^/\s'",;:|<>()]+"""
FOLDERS = re.compile(
    rf"""(?<![\w/.~<)\]}}])~?/(?=[\w.~-])(?:{PART}/)+(?={PART})|(?:^|(?<=['"=:]))/(?=[\w.~-])"""
)
"""The folders of an absolute path, before its last part; not those of an address, or of ``and/or``."""
QUOTED = re.compile(r"""(?<!\w)(['"`])(?P<value>~?/(?:(?!\1).)*|\w[^'"`\s/]*[:=]~?/(?:(?!\1).)*)\1""")
"""A value in quotes with an absolute path in it, as in a command or a message."""
BEGINS = re.compile(r"(?:[\w-]+[:=])?~?/(?=[\w.~-])")
"""How a text begins that is such a value, without quotes."""
IN_VALUE = re.compile(r"""(?:^|(?<=[=:,;|]))~?/(?=[\w.~-])(?:[^/:,;|\n]+/)*(?=[^/\s])""")
"""The same as `FOLDERS` where the text is known to be a value: folders may have spaces in their names."""


def without_folders(text: str) -> str:
    """Return text in which of every absolute path only the last part is left: a page may be sent around.

    A folder with a space in its name is known by quotes, or by a text that begins with the path.
    """
    text = QUOTED.sub(lambda found: found[1] + IN_VALUE.sub("", found["value"]) + found[1], text)
    return FOLDERS.sub("", IN_VALUE.sub("", text) if BEGINS.match(text) else text)


def shown_text(text: str) -> str:
    """Return text as HTML, `without_folders`, with nothing that is not seen."""
    return escape("\n".join(map(visible, without_folders(text).split("\n"))))


def page(title: str, lead: str, sections: Iterable[str]) -> str:
    """Return the page; ``title`` is text, the other arguments are HTML."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{shown_text(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{shown_text(title)}</h1>\n{lead}</header>\n{''.join(sections)}</main>\n"
        f"<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )


def section(heading: str, *content: str) -> str:
    """Return a section, or nothing if it has no content."""
    body = "".join(content)
    return f"<section>\n<h2>{shown_text(heading)}</h2>\n{body}</section>\n" if body else ""


def warning(heading: str, *content: str) -> str:
    """Return a highlighted section, or nothing if it has no content."""
    return section(heading, *content).replace("<section>", '<section class="warning">', 1)


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of text; ``kind`` is its CSS class."""
    return f'<p class="{kind}">{shown_text(text)}</p>\n' if kind else f"<p>{shown_text(text)}</p>\n"


def verbatim(text: str) -> str:
    """Return preformatted text, to be copied."""
    return f"<pre>{shown_text(text)}</pre>\n"


def command(words: Iterable[str]) -> str:
    """Return a command that wraps only between words."""
    return f"<pre>{' '.join(f'<span>{shown_text(word)}</span>' for word in words)}</pre>\n"


def folded(summary: str, content: str) -> str:
    """Return content that is hidden until the summary is clicked."""
    return f"<details><summary>{shown_text(summary)}</summary>\n{content}</details>\n"


def key_values(values: Mapping[str, str]) -> str:
    """Return a list of names and values; empty values are left out."""
    items = "".join(
        f"<div><dt>{shown_text(name)}</dt><dd>{shown_text(value)}</dd></div>\n"
        for name, value in values.items()
        if value
    )
    return f'<dl class="facts">\n{items}</dl>\n' if items else ""


def gallery(figures: Mapping[str, "InlineFigure | DrawnApart | None"], wide: bool = False) -> str:
    """Return figures by caption, side by side if there is room and they are not wide."""
    for caption, figure in figures.items():
        if figure:
            collect(caption, figure)
    drawn = "".join(
        f'<figure role="img" aria-label="{shown_text(caption)}">\n'
        f"<figcaption>{shown_text(caption)}</figcaption>\n{figure.as_svg(file_name(caption))}</figure>\n"
        for caption, figure in figures.items()
        if figure
    )
    return f'<div class="figures{" wide" if wide else ""}">\n{drawn}</div>\n' if drawn else ""

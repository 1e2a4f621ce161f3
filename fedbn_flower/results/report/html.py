"""A page that stands alone: text, tables, pictures as SVG, its style sheet; no script, no network."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING

from .style import STYLE

if TYPE_CHECKING:
    from ..plotting.svg_figure import InlineFigure


def page(title: str, lead: str, sections: Iterable[str]) -> str:
    """The whole page; ``title`` is text, the others are HTML."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(title)}</h1>\n{lead}</header>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def section(heading: str, *content: str) -> str:
    """A part of the page; nothing where it has no content."""
    body = "".join(content)
    return f"<section>\n<h2>{escape(heading)}</h2>\n{body}</section>\n" if body else ""


def warning(heading: str, *content: str) -> str:
    """A part that is to be seen first; nothing where it has no content."""
    return section(heading, *content).replace("<section>", '<section class="warning">', 1)


def paragraph(text: str, kind: str = "") -> str:
    """Text; ``kind`` is its class in the style sheet."""
    return f'<p class="{kind}">{escape(text)}</p>\n' if kind else f"<p>{escape(text)}</p>\n"


def verbatim(text: str) -> str:
    """What is to be copied."""
    return f"<pre>{escape(text)}</pre>\n"


def command(words: Iterable[str]) -> str:
    """A command, whose lines break between words only."""
    return f"<pre>{' '.join(f'<span>{escape(word)}</span>' for word in words)}</pre>\n"


def folded(summary: str, content: str) -> str:
    """What is seen when it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>\n{content}</details>\n"


def facts(told: Mapping[str, str]) -> str:
    """A few figures by their name."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>\n" for name, text in told.items() if text
    )
    return f'<dl class="facts">\n{items}</dl>\n' if items else ""


def pictures(figures: Mapping[str, "InlineFigure | None"], wide: bool = False) -> str:
    """Pictures by their captions, beside each other where there is room and they are not wide."""
    drawn = "".join(
        f'<figure role="img" aria-label="{escape(caption)}">\n'
        f"<figcaption>{escape(caption)}</figcaption>\n{figure.as_svg(_name(caption))}</figure>\n"
        for caption, figure in figures.items()
        if figure
    )
    return f'<div class="pictures{" wide" if wide else ""}">\n{drawn}</div>\n' if drawn else ""


def _name(caption: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "-" for c in caption.lower())

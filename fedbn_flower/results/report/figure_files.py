"""Write every figure of a report as a file of its own, as journals ask for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...core.files import write_atomically

if TYPE_CHECKING:
    from ..plotting.drawer import DrawnApart
    from ..plotting.svg_figure import InlineFigure

FORMATS = ("pdf", "svg", "png")
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


def write_figures(figures: "dict[str, InlineFigure]", folder: Path, form: str) -> list[Path]:
    """Write figures into a folder, each as one file of a form of `FORMATS`, and return the paths."""
    paths = []
    for name, figure in figures.items():
        paths.append(path := folder / f"{name}.{form}")
        write_atomically(path, figure.as_file(form))
    return paths

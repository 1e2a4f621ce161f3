"""Figures without pyplot: a library must not touch its windows and global state."""

import io
import re
from html import escape
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axis import Axis, YAxis
from matplotlib.backend_bases import RendererBase
from matplotlib.category import StrCategoryFormatter
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from ...core.files import json_text

_SVG: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "fedbn-flower"}
_GROUP_ID = re.compile(r'(<g) id="[^"]*"')
_PLACES, _DIGITS = re.compile(r' (?:d|x|y|transform)="[^"]*"'), re.compile(r"(?<=\.\d\d)\d+")
_FONTS = re.compile(r"'DejaVu Sans'[^;\"]*")  # a page has its own
_POINTS = 72  # of an inch
MOST_TOLD = 100  # points of a line that a page tells under the mouse
_ID = re.compile(r'(\bid="|href="#|url\(#)')


class InlineFigure(Figure):
    """A figure that a notebook displays."""

    _is_saved = False

    def as_png(self) -> bytes:
        """Return the figure as PNG."""
        buffer = io.BytesIO()
        self._save(buffer, format="png", dpi=120)
        return buffer.getvalue()

    def as_file(self, form: str) -> bytes:
        """Return the figure as PDF, SVG or PNG, on white."""
        buffer = io.BytesIO()
        dated = {} if form == "png" else {"CreationDate" if form == "pdf" else "Date": None}
        with rc_context(_SVG):
            self._save(buffer, format=form, dpi=300, metadata=dated)
        return buffer.getvalue()

    def as_svg(self, name: str, tells: bool = True) -> str:
        """Return the figure as an ``<svg>`` element for a page, which by default `told` values.

        It has no background, and black takes the page's text colour. Ids begin with ``name``, which must be
        unique in the page.
        """
        buffer = io.StringIO()
        with rc_context(_SVG):
            self._save(buffer, format="svg", transparent=True, metadata={"Date": None})
        svg = buffer.getvalue()
        svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
        if tells:
            svg = _FONTS.sub("sans-serif", _PLACES.sub(lambda found: _DIGITS.sub("", found[0]), svg))
            text = escape(json_text(self.told()), quote=False).replace("'", "&#39;")
            svg = f"<svg data-told='{text}'{svg[4:]}" if text != "[]" else svg
        svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = _GROUP_ID.sub(r"\1", svg)
        return _ID.sub(rf"\1{name}-", svg)

    def told(self) -> list[list[Any]]:
        """Return each line's name, its axes' labels, and by point its places in the drawing and its values.

        A line without a name is told if it is no help, dotted, dashed or pale.
        """
        found = []
        for axes in (axes for axes in self.axes if axes.get_visible()):
            bars = {c.lines[0]: c.get_label() for c in axes.containers if isinstance(c, ErrorbarContainer)}
            labels = axes.get_xlabel() or self.get_supxlabel(), axes.get_ylabel() or self.get_supylabel()
            panel = axes.get_title() * (len(self.axes) > 1)
            for line in axes.get_lines():
                name = _unescaped(str(bars.get(line, line.get_label())).partition("\n")[0])
                name = "" if name.startswith("_") else name
                is_help = line.get_alpha() is not None or line.get_linestyle() in ("--", ":")
                if line.get_transform() != axes.transData or (is_help and not name):
                    continue
                values = np.asarray(line.get_xydata(), float)
                values = values[np.isfinite(values).all(1)]
                if len(values) > MOST_TOLD:  # the first and the last among them
                    values = values[np.linspace(0, len(values) - 1, MOST_TOLD).round().astype(int)]
                places = axes.transData.transform(values) * _POINTS / self.dpi
                places[:, 1] = self.get_figheight() * _POINTS - places[:, 1]
                x, y = (_told(axis, of) for axis, of in zip((axes.xaxis, axes.yaxis), values.T, strict=True))
                found.append([name or panel, *labels, *places.T.round(1).tolist(), x, y])
        return found

    def draw(self, renderer: RendererBase) -> None:
        """Draw; in the pass that Matplotlib makes before it saves, find only the layout."""
        engine = self.get_layout_engine()
        if self._is_saved and isinstance(engine, ConstrainedLayoutEngine):  # saving goes without one
            engine.execute(self)
        else:
            super().draw(renderer)

    def _save(self, buffer: io.BytesIO | io.StringIO, **options: Any) -> None:
        self._is_saved = True
        try:
            self.savefig(buffer, **options)
        finally:
            self._is_saved = False

    def _repr_png_(self) -> bytes:
        return self.as_png()


def _unescaped(text: str) -> str:
    """Return a text as it was before Matplotlib was kept from reading it as a formula."""
    return text.replace(r"\$", "$")


def _told(axis: Axis, values: NDArray[np.float64]) -> list[float | str]:
    """Return values as an axis names them, if it has words or names of rows, else five digits."""
    formatter = axis.get_major_formatter()
    is_named = isinstance(formatter, FuncFormatter) and isinstance(axis, YAxis)
    if is_named or isinstance(formatter, StrCategoryFormatter):
        return [_unescaped(formatter(round(value))) for value in values]
    return [float(f"{value:.5g}") for value in values]

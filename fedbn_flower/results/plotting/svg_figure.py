"""Figures without pyplot: a library must not touch its windows and global state."""

import io
import re
from typing import Any

from matplotlib import rc_context
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

_SVG: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "fedbn-flower"}
_GROUP_ID = re.compile(r'(<g) id="[^"]*"')
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

    def as_svg(self, name: str) -> str:
        """Return the figure as an ``<svg>`` element for a page.

        It has no background, and black takes the page's text colour. Ids begin with ``name``, which must be
        unique in the page.
        """
        buffer = io.StringIO()
        with rc_context(_SVG):
            self._save(buffer, format="svg", transparent=True, metadata={"Date": None})
        svg = buffer.getvalue()
        svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
        svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = _GROUP_ID.sub(r"\1", svg)
        return _ID.sub(rf"\1{name}-", svg)

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

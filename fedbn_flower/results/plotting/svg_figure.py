"""Figures without pyplot: a library must not touch its windows and global state."""

import io
import re
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

_SVG: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "fedbn-flower"}
_GROUP_ID = re.compile(r'(<g) id="[^"]*"')
_ID = re.compile(r'(\bid="|href="#|url\(#)')


class InlineFigure(Figure):
    """A figure that a notebook displays."""

    def as_png(self) -> bytes:
        """Return the figure as PNG."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=120)
        return buffer.getvalue()

    def as_svg(self, name: str) -> str:
        """Return the figure as an ``<svg>`` element for a page.

        It has no background, and black takes the page's text colour. Ids begin with ``name``, which must be
        unique in the page.
        """
        buffer = io.StringIO()
        with rc_context(_SVG):
            self.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        svg = buffer.getvalue()
        svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
        svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = _GROUP_ID.sub(r"\1", svg)
        return _ID.sub(rf"\1{name}-", svg)

    def _repr_png_(self) -> bytes:
        return self.as_png()

"""Figures without pyplot, whose windows and state a library leaves alone; imported where one is drawn."""

import io

from matplotlib.figure import Figure


class InlineFigure(Figure):
    """A figure that a notebook shows."""

    def as_png(self) -> bytes:
        """Its picture."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=120)
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self.as_png()

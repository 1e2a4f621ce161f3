"""A forest plot: a value and its interval for each site."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...records.metrics import percent, spelt
from ..terminal import shorten_middle
from .line_styles import COLOURS
from .plots import new_figure, plain

if TYPE_CHECKING:
    from .svg_figure import InlineFigure

LABEL_LENGTH = 44  # characters


def forest_plot(rows: Sequence[tuple[str, float, float, float]], metric: str) -> "InlineFigure":
    """Draw rows of label, value, low and high end, the first one on top."""
    factor = percent(metric)
    figure = new_figure(4.6, 0.8 + 0.24 * len(rows))
    axes = figure.subplots()
    for place, (_, value, low, high) in enumerate(rows):
        axes.plot([factor * low, factor * high], [place, place], "-", color=COLOURS[0], linewidth=1.4)
        axes.plot([factor * value], [place], "s", color=COLOURS[0], markersize=4)
    axes.set_yticks(range(len(rows)), [plain(name) for name in _labels(rows)], fontsize="small")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(plain(f"{spelt(metric)}, %" if factor == 100 else spelt(metric)))
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def _labels(rows: Sequence[tuple[str, float, float, float]]) -> list[str]:
    return shorten_middle([label for label, *_ in rows], LABEL_LENGTH)

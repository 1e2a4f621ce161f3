"""A scatter of clients: a metric with the others over the metric alone."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...records.metrics import percent, spelt
from .line_styles import COLOURS, MARKERS
from .plots import new_figure, plain

if TYPE_CHECKING:
    from .svg_figure import InlineFigure


def gain_plot(points: Mapping[str, Sequence[tuple[float, float]]], metric: str) -> "InlineFigure":
    """Draw a client's metric alone and with the others, a colour for each label, and the diagonal."""
    factor = percent(metric)
    figure = new_figure(5.2, 4.6)
    axes = figure.subplots()
    every = [factor * value for of in points.values() for pair in of for value in pair]
    margin = 0.05 * (max(every) - min(every)) or 0.05
    ends = [min(every) - margin, max(every) + margin]
    axes.plot(ends, ends, "--", color="#888888", linewidth=1)
    for number, (label, of) in enumerate(points.items()):
        x, y = ([factor * pair[i] for pair in of] for i in (0, 1))
        marker, colour = MARKERS[number % len(MARKERS)], COLOURS[number % len(COLOURS)]
        axes.plot(x, y, marker, color=colour, markersize=5, alpha=0.8, label=plain(label))
    unit = ", %" if factor == 100 else ""
    axes.set_xlabel(plain(f"{spelt(metric)} alone{unit}"))
    axes.set_ylabel(plain(f"{spelt(metric)} with the others{unit}"))
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize="small")
    return figure

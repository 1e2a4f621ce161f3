"""A critical-difference diagram: mean ranks on a line, and bars that join methods which are not told apart.

J. Demšar: Statistical comparisons of classifiers over multiple data sets. JMLR 7, 2006, figure 1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..terminal import shorten_middle
from .line_styles import COLOURS
from .plots import new_figure, plain

if TYPE_CHECKING:
    from .svg_figure import InlineFigure

LABEL_LENGTH = 30  # characters
STEP = 0.5  # between two lines, in units of the axis down


def joined(ranks: Sequence[float], critical_difference: float) -> list[tuple[float, float]]:
    """Return the ends of each longest run of mean ranks that differ by the critical difference at most."""
    found: list[tuple[float, float]] = []
    ordered = sorted(ranks)
    for low in ordered:
        high = max(rank for rank in ordered if rank - low <= critical_difference)
        if high > low and (not found or high > found[-1][1]):
            found.append((low, high))
    return found


def critical_difference_diagram(
    methods: Sequence[str], ranks: Sequence[float], critical_difference: float
) -> "InlineFigure":
    """Draw the diagram, the best mean rank to the left."""
    order = np.argsort(ranks, kind="stable")
    names = [plain(name) for name in shorten_middle([methods[i] for i in order], LABEL_LENGTH)]
    places = [float(ranks[i]) for i in order]
    bars = joined(places, critical_difference)
    half, top = -(-len(names) // 2), STEP * (len(bars) + 1)
    figure = new_figure(6.4, 1.2 + 0.24 * half + 0.2 * len(bars))
    axes = figure.subplots()
    last = len(names)
    for number, (name, rank) in enumerate(zip(names, places, strict=True)):
        left = number < half
        down = top + STEP * (number if left else last - 1 - number)
        edge = 1 - 0.05 * last if left else last + 0.05 * last
        axes.plot([rank, rank, edge], [0, down, down], "-", color="#000000", linewidth=0.9)
        aligned = "right" if left else "left"
        axes.text(edge, down, f" {name} ", ha=aligned, va="center", fontsize="small")
    for number, (low, high) in enumerate(bars):
        down = STEP * (number + 1) * 0.8
        axes.plot([low - 0.03, high + 0.03], [down, down], "-", color=COLOURS[0], linewidth=4)
    axes.plot([1, 1 + critical_difference], [-1.4, -1.4], "|-", color=COLOURS[1], linewidth=1.4)
    axes.text(
        1 + critical_difference / 2, -1.6, f"critical difference {critical_difference:.2f}",
        ha="center", va="bottom", fontsize="small",
    )  # fmt: skip
    axes.set_xlim(1 - 0.05 * last, last + 0.05 * last)
    axes.set_ylim(top + STEP * half, -2.4)
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    axes.spines["top"].set_position(("data", 0))
    axes.spines["top"].set_bounds(1, last)
    axes.xaxis.set_ticks_position("top")
    axes.set_xticks(range(1, last + 1))
    axes.set_yticks([])
    return figure

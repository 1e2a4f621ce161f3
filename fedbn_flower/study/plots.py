"""Figures that compare methods: gains, ranks; and of two classes decision curves and calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..records.metrics import percent, spelt
from ..results.plotting.plots import COLOURS, MARKERS, new_figure, plain
from ..results.terminal import shorten_middle
from .decisions import calibration, decision_curve

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..results.plotting.svg_figure import InlineFigure


def gain_plot(points: Mapping[str, Sequence[tuple[float, float]]], metric: str) -> InlineFigure:
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


METHOD_LENGTH = 30  # characters
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
) -> InlineFigure:
    """Draw the diagram, the best mean rank to the left."""
    order = np.argsort(ranks, kind="stable")
    names = [plain(name) for name in shorten_middle([methods[i] for i in order], METHOD_LENGTH)]
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


BELOW = 0.25
"""How much of the axis of net benefit is below 0, as a share of the part above."""


def decision_curves(table: DataFrame, event: str) -> InlineFigure:
    """Draw the net benefit by threshold probability: of the model, of all and of nobody."""
    found = decision_curve(table)
    figure = new_figure(4.2, 3.6)
    axes = figure.subplots()
    most = max(float(found["model"].max()), float(found["all"].max()), 0.01)
    axes.set(xlabel=plain(f"threshold probability of {event}"), ylabel="net benefit", xlim=(0, 1))
    axes.set_ylim(-BELOW * most, 1.1 * most)
    styles = (("all", ":", "#999999"), ("nobody", "--", "#999999"), ("model", "-", COLOURS[0]))
    for name, style, colour in styles:
        axes.plot(found["probability"], found[name], style, color=colour, label=name, linewidth=1.4)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    return figure


def calibration_curve(table: DataFrame, event: str) -> InlineFigure | None:
    """Draw the share of events by mean score with its 95 % interval; None of too few cases for a bin."""
    found = calibration(table)
    if found.empty:
        return None
    figure = new_figure(4.2, 3.6)
    axes = figure.subplots()
    most = 1.05 * float(found[["high", "share", "score"]].max(axis=None))  # of one group there is no high
    axes.set(xlabel="mean score", ylabel=plain(f"share of {event}"), xlim=(0, most), ylim=(0, most))
    axes.plot([0, most], [0, most], ":", color="#999999", linewidth=1)
    lengths = [found["share"] - found["low"], found["high"] - found["share"]]
    axes.errorbar(
        found["score"], found["share"], lengths, fmt="o-", color=COLOURS[0], markersize=4, linewidth=1.4
    )
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure

"""Figures that compare methods, sites and models: by site, forests, gains, ranks, decision curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

import numpy as np

from ...records.metrics import percent, spelt
from ..decisions import calibration, decision_curve
from ..terminal import shorten_middle
from .plots import COLOURS, MARKERS, legend_below, new_figure, plain

if TYPE_CHECKING:
    from pandas import DataFrame

    from .svg_figure import InlineFigure

Ends = tuple[float, float] | None
NO_ENDS: Mapping[str, Mapping[str, Ends]] = {}
LABEL_LENGTH = 44  # characters
APART = 0.7  # of the room of a site, over which the methods are spread


def by_site_plot(
    values: Mapping[str, Mapping[str, Sequence[float]]],
    metric: str,
    title: str = "",
    ends: Mapping[str, Mapping[str, Ends]] = NO_ENDS,
) -> InlineFigure:
    """Draw the mean over seeds of each method at each site, with one sample standard deviation (n - 1), and a
    line at the mean over the sites.

    ``values`` has each seed's value by method and site, and ``ends`` the interval of values of one seed.
    """
    values = {label: found for label, found in values.items() if found}  # a method may have no run that ended
    factor = percent(metric)
    sites = list(dict.fromkeys(site for found in values.values() for site in found))
    figure = new_figure(7, 1.2 + (0.14 + 0.1 * len(values)) * len(sites))
    axes = figure.subplots()
    for number, (label, found) in enumerate(values.items()):
        places = [sites.index(site) + APART * ((number + 0.5) / len(values) - 0.5) for site in found]
        means = [factor * mean(of) for of in found.values()]
        spread = [
            [factor * part for part in _spread(of, ends.get(label, {}).get(site))]
            for site, of in found.items()
        ]
        colour = COLOURS[number % len(COLOURS)]
        axes.errorbar(
            means, places, xerr=np.transpose(spread), linestyle="", marker=MARKERS[number % len(MARKERS)],
            markersize=4, color=colour, label=plain(label), elinewidth=1,
        )  # fmt: skip
        axes.axvline(mean(means), color=colour, linewidth=0.6, linestyle=":")
    axes.set_yticks(range(len(sites)), [plain(name) for name in shorten_middle(sites, LABEL_LENGTH)])
    axes.set_ylim(len(sites) - 0.5, -0.5)
    axes.set_xlabel(plain(f"{spelt(metric)}, %" if factor == 100 else spelt(metric)))
    axes.set_title(plain(title), fontsize="medium")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    legend_below(figure)
    return figure


def _spread(seeds: Sequence[float], ends: Ends) -> tuple[float, float]:
    """Return how far a bar goes below and above the mean."""
    if len(seeds) > 1:
        return stdev(seeds), stdev(seeds)
    return (seeds[0] - ends[0], ends[1] - seeds[0]) if ends else (0.0, 0.0)


def forest_plot(rows: Sequence[tuple[str, float, float, float]], metric: str) -> InlineFigure:
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

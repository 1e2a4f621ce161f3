"""Figures that compare methods, sites and models: by site, forests, gains, ranks, decision curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np

from ...records.metrics import percent, with_unit
from ..terminal import shorten_middle
from .plots import COLOURS, MARKERS, legend_below, new_axes, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    figure, axes = new_axes(7, 1.2 + (0.14 + 0.1 * len(values)) * len(sites))
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
    axes.set_title(plain(title), fontsize="medium")
    _name_rows(axes, sites, metric)
    legend_below(figure)
    return figure


def _spread(seeds: Sequence[float], ends: Ends) -> tuple[float, float]:
    """Return how far a bar goes below and above the mean."""
    if len(seeds) > 1:
        return stdev(seeds), stdev(seeds)
    below, above = (seeds[0] - ends[0], ends[1] - seeds[0]) if ends else (0.0, 0.0)
    return max(0.0, below), max(0.0, above)  # an end that is the value itself may be rounded


def forest_plot(rows: Sequence[tuple[str, float, float, float]], metric: str) -> InlineFigure:
    """Draw rows of label, value, low and high end, the first one on top."""
    factor = percent(metric)
    figure, axes = new_axes(4.6, 0.8 + 0.24 * len(rows))
    for place, (_, value, low, high) in enumerate(rows):
        ends = [factor * low, factor * high], [place, place]
        axes.plot(*ends, "-", color=COLOURS[0], linewidth=1.4, label="95 % interval")
        axes.plot([factor * value], [place], "s", color=COLOURS[0], markersize=4)
    _name_rows(axes, [label for label, *_ in rows], metric, fontsize="small")
    return figure


def _name_rows(axes: Axes, names: Sequence[str], metric: str, **how: Any) -> None:
    """Name the rows of a plot, the first one on top, and the metric that it is of."""
    axes.set_yticks(range(len(names)), list(map(plain, shorten_middle(names, LABEL_LENGTH))), **how)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(plain(with_unit(metric)))
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)

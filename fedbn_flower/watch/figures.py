"""The pictures: Bokeh's figures, as the page embeds them."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import isfinite, nan
from textwrap import fill
from typing import Any

import numpy as np
from bokeh.embed import json_item
from bokeh.models import (
    ColorBar,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    Legend,
    LegendItem,
    LinearColorMapper,
)
from bokeh.palettes import Category10, Cividis256
from bokeh.plotting import figure
from bokeh.themes import DARK_MINIMAL, LIGHT_MINIMAL, built_in_themes

from ..records.metrics import heading
from .curves import ROUND, Line, smoothed

COLOURS = Category10[10]
DASHES = ("solid", "dashed", "dotted")
"""Of the lines after the tenth, and after the twentieth."""
LOOK = {"tools": "pan,box_zoom,wheel_zoom,reset", "sizing_mode": "stretch_width", "toolbar_location": "above"}
DIGITS = {"$snap_y": "printf", "@image": "printf"}
"""Of numbers under the mouse as many as count, however small they are."""
MOST_NAMES = 40
"""Sites whose names stand beside a heat map."""
LINES, BANDS, DOTS = "lines", "bands", "dots"
COLUMNS = {LINES: "xs ys name colour dash alpha width", BANDS: "xs ys colour", DOTS: "x y name colour"}
"""Of the sources of a picture of curves; dots are lines of a single point."""


def swatches(lines: Sequence[str]) -> dict[str, str]:
    """Return by its name what shows the colour of each line: with gaps, where it is dashed."""
    dashed = (f"repeating-linear-gradient(90deg, {c} 0 .2rem, transparent .2rem .3rem)" for c in COLOURS)
    return dict(zip(lines, cycle([*COLOURS, *dashed]), strict=False))


def data_of(lines: Sequence[Line], window: int = 1) -> dict[str, dict[str, list[Any]]]:
    """Return the columns of the sources of `curves`: what is measured, pale if it is also smoothed."""
    rows: dict[str, list[tuple[Any, ...]]] = {source: [] for source in COLUMNS}
    for number, line in enumerate(lines):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
        pale, width = (0.3, 1.0) if window > 1 else (1.0, 2.0)
        seen = [y if isfinite(y) else nan for y in line.y]  # no axis reaches to infinity
        rows[LINES].append((line.x, seen, line.name, colour, dash, pale, width))
        if window > 1:
            rows[LINES].append((line.x, smoothed(seen, window), line.name, colour, dash, 1.0, 2.5))
        if len(line.x) == 1:
            rows[DOTS].append((line.x[0], seen[0], line.name, colour))
        if line.spread:
            low, high = ([y + sign * d for y, d in zip(line.y, line.spread, strict=True)] for sign in (-1, 1))
            rows[BANDS].append(([*line.x, *reversed(line.x)], [*high, *reversed(low)], colour))
    return {
        source: {name: [row[i] for row in rows[source]] for i, name in enumerate(names.split())}
        for source, names in COLUMNS.items()
    }


def has_legend(data: Mapping[str, Any]) -> bool:
    """Whether a picture, which may be saved, names its lines; of many the page's table does."""
    return 1 < len({*data[LINES]["name"]}) <= len(COLOURS)


def curves(data: Mapping[str, Any], axis: str, metric: str, logs: tuple[bool, bool], dark: bool) -> Any:
    """Return a picture of curves to embed; ``logs`` says of x and y whether they are logarithmic."""
    x_kind, y_kind = ("log" if log else "linear" for log in logs)
    plot = figure(**LOOK, x_axis_type=x_kind, y_axis_type=y_kind, frame_height=300)
    bands, lines, dots = (ColumnDataSource(data[name], name=name) for name in (BANDS, LINES, DOTS))
    plot.patches("xs", "ys", fill_color="colour", fill_alpha=0.18, line_color=None, source=bands)
    look = {"line_color": "colour", "line_dash": "dash", "line_alpha": "alpha", "line_width": "width"}
    drawn = plot.multi_line("xs", "ys", source=lines, **look)
    single = plot.scatter("x", "y", color="colour", size=7, source=dots)
    if has_legend(data):
        items = [LegendItem(label={"field": "name"}, renderers=[drawn])]
        plot.add_layout(Legend(items=items, spacing=0, padding=4, location="left"), "below")
    told = [("", "@name"), (axis, "$snap_x{0.[000]}"), (metric, "$snap_y{%.9g}")]
    plot.add_tools(
        HoverTool(renderers=[drawn, single], tooltips=told, formatters=DIGITS, line_policy="nearest")
    )
    plot.xaxis.axis_label, plot.yaxis.axis_label = axis, heading(metric)
    if axis == ROUND and not logs[0]:
        plot.xaxis[0].ticker.min_interval = 1
    return _item(plot, dark)


def heat_map(grid: Any, names: Sequence[str], metric: str, dark: bool) -> Any:
    """Return a picture of a metric by site (rows of the grid, the first on top) and round, to embed."""
    rows, rounds = grid.shape
    of = {"x_range": (0.5, rounds + 0.5), "y_range": (rows - 0.5, -0.5), "title": fill(heading(metric), 24)}
    plot = figure(**LOOK, **of, height=min(720, max(240, 130 + 22 * rows)))
    known = np.isfinite(grid)
    ends = (of(grid, where=known, initial=end) for of, end in ((np.min, np.inf), (np.max, -np.inf)))
    low, high = map(float, ends) if known.any() else (0.0, 0.0)
    colours = LinearColorMapper(Cividis256, low=low, high=high + (high == low), nan_color="rgba(0,0,0,0)")
    lines = {"image": [*grid[:, None]], "y": [row - 0.5 for row in range(rows)], "site": names}
    drawn = plot.image(x=0.5, y="y", dw=rounds, dh=1, color_mapper=colours, source=ColumnDataSource(lines))
    told = [("round", "$x{0}"), ("site", "@site"), (metric, "@image{%.6g}")]
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=told, formatters=DIGITS))
    plot.xaxis.axis_label, plot.yaxis.axis_label = "round", "site"
    plot.xaxis[0].ticker.min_interval = 1
    plot.yaxis.ticker = FixedTicker(ticks=list(range(0, rows, 1 + rows // MOST_NAMES)))
    plot.yaxis.major_label_overrides = dict(enumerate(names))
    plot.add_layout(ColorBar(color_mapper=colours), "right")
    return _item(plot, dark)


def _item(plot: Any, dark: bool) -> Any:
    plot.toolbar.logo = None  # it leads to another site
    return json_item(plot, theme=built_in_themes[DARK_MINIMAL if dark else LIGHT_MINIMAL])

"""The figures of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING

import numpy as np

from ...core.ground.columns import RATES
from ...core.stored import rows_of
from ...records.metrics import percent, with_unit
from ..run_reader import PARTITIONS, Points, Run
from ..summary import seeds_text
from ..terminal import shorten_middle
from .plots import (
    COLOURS,
    class_counts,
    draw_curves,
    integer_ticks,
    legend_below,
    lies_on,
    line_style,
    new_axes,
    new_figure,
    open_grid,
    plain,
    set_cost_axis,
    set_round_axes,
)

if TYPE_CHECKING:
    from .svg_figure import InlineFigure

MAX_MULTIPLES = 12  # clients, above which there is a heat map
COLUMNS = 3
TICKS = 3  # below small axes
TITLE_LENGTH = 20  # characters of a client's name above its axes
EXTRA_WIDTH = 2.2  # points by which a covered line is wider than the line on top of it


def metric_curve(run: Run, name: str, cost: str = "") -> InlineFigure:
    """Draw a held-out metric by round, or by one of `run_reader.COSTS`."""
    figure, axes = new_axes(4.6, 3.1)
    draw_curves(axes, run, name, run.costs(cost) if cost else None)
    if cost:
        set_cost_axis(axes, cost)
    legend_below(figure)
    return figure


def mean_curves(
    lines: Mapping[str, Sequence[Points]],
    metric: str,
    title: str = "",
    costs: Mapping[str, Sequence[Points]] | None = None,
    cost: str = "",
    of: str = "",
) -> InlineFigure:
    """Draw a metric, which is ``of`` some examples, a line per group of runs that differ only in their seed.

    The line is the mean of the runs that have the round. The band is one sample standard deviation (n - 1),
    where at least two runs have it. With the ``costs`` of the same runs each round is drawn at their mean.
    """
    figure, axes = new_axes(7, 3.9 + 0.17 * len(lines))
    seeds = seeds_text(list(map(len, lines.values())))
    factor = percent(metric)
    means = {label: _means(runs, factor) for label, runs in lines.items()}
    spent = {label: _means(runs) for label, runs in (costs or {}).items()}
    for number, (label, runs) in enumerate(lines.items()):
        line = means[label]
        values = {r: [factor * run[r] for run in runs if r in run] for r in line}
        style = line_style(number, len(values))
        covering = sum(later == line for later in [*means.values()][number + 1 :])
        style["linewidth"] += EXTRA_WIDTH * covering  # visible on both sides of equal lines on top of it
        at = spent.get(label, {r: r for r in values})
        shown = plain(label + lies_on(means, label))
        axes.plot([at[r] for r in values], list(line.values()), label=shown, **style)
        band = {r: (mean(v), stdev(v)) for r, v in values.items() if len(v) > 1}
        low, high = [m - s for m, s in band.values()], [m + s for m, s in band.values()]
        axes.fill_between([at[r] for r in band], low, high, color=style["color"], alpha=0.15, linewidth=0)
    set_round_axes(axes, metric)
    axes.set_ylabel("\n".join(filter(None, (axes.get_ylabel(), of and f"({of})"))))
    if cost:
        set_cost_axis(axes, cost)
    note = f"mean of {seeds} seeds, band: ± sample standard deviation" if seeds else ""
    axes.set_title("\n".join(filter(None, (plain(title), note))), fontsize="medium")
    legend_below(figure, handlelength=4)
    return figure


def _means(runs: Sequence[Points], factor: int = 1) -> Points:
    """Return a factor times the mean by round, over the runs that have the round."""
    rounds = sorted({r for run in runs for r in run})
    return {r: factor * mean([run[r] for run in runs if r in run]) for r in rounds}


def client_curves(run: Run, metric: str = "") -> InlineFigure | None:
    """Draw a metric of each client by round, by default the main one: small multiples, or a heat map of many.

    None if no client evaluated.
    """
    metric = metric or run.main_metric
    factor = percent(metric)
    points = {
        i: {r: factor * value for r, value in found.items()} for i, found in run.client_points(metric).items()
    }
    if not points:
        return None
    return _multiples(run, points, metric) if len(points) <= MAX_MULTIPLES else _heat_map(run, points, metric)


def _multiples(run: Run, points: Mapping[int, Points], metric: str) -> InlineFigure:
    columns = min(COLUMNS, len(points))
    lines = -(-len(points) // columns)
    figure = new_figure(4.6, 0.6 + max(2.4, 1.3 * lines))
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat:
        axes.set_visible(False)
    names = shorten_middle([run.client_names.get(i, f"client {i}") for i in points], TITLE_LENGTH)
    for axes, name, values in zip(panels.flat, names, points.values(), strict=False):
        axes.set_visible(True)
        for other in points.values():
            axes.plot(
                list(other), list(other.values()), _marker(other), color="#999999", alpha=0.4, linewidth=0.6
            )
        axes.plot(list(values), list(values.values()), _marker(values), color=COLOURS[0], linewidth=1.6)
        axes.set_title(plain(name), fontsize="small")
        open_grid(axes)
        integer_ticks(axes, TICKS)
        axes.tick_params(axis="x", labelsize="small")
    figure.supxlabel("round", fontsize="small")
    figure.supylabel(plain(with_unit(metric)), fontsize="small")
    return figure


def _marker(line: Points) -> str:
    """Return the format of a line: a dot if it has only one point."""
    return "o" if len(line) == 1 else "-"


def _heat_map(run: Run, points: Mapping[int, Points], metric: str) -> InlineFigure:
    rounds = sorted({r for values in points.values() for r in values})
    table = np.array([[values.get(r, np.nan) for r in rounds] for values in points.values()])
    figure, axes = new_axes(4.6, 3.6)
    edges = (0.5, len(rounds) + 0.5, len(points) - 0.5, -0.5)
    image = axes.imshow(table, aspect="auto", interpolation="none", cmap="cividis", extent=edges)
    figure.colorbar(image, label=plain(with_unit(metric)))
    axes.set(xlabel="round", ylabel="client")
    integer_ticks(axes)
    if rounds != list(range(1, len(rounds) + 1)):
        axes.set_xlabel("evaluated round")
    if list(points) != list(range(len(points))):
        axes.set_ylabel("clients that evaluated, in order")
    return figure


def partition_counts(run: Run) -> InlineFigure | None:
    """Draw the class counts by client from ``partitions.csv``; None if there is no such file."""
    path = run.folder / PARTITIONS
    if not path.exists():
        return None
    names, counts = [], []
    for row in rows_of(path):  # a client's classes are together, all clients have the same
        if row["partition"] == "0":
            names.append(row["class"])
        counts.append(int(row["examples"]))
    return class_counts(np.array(counts).reshape(-1, len(names)), names, "", list(run.client_names.values()))


def learning_rates(run: Run) -> InlineFigure | None:
    """Draw the learning rates of the rounds that are done; None if no rate has a schedule."""
    rates = {key: points for key in RATES if (points := run.points(key))}
    if not rates:
        return None
    figure = new_figure(4.6, 0.6 + 1.8 * len(rates))
    panels = figure.subplots(len(rates), sharex=True, squeeze=False)[:, 0]
    for axes, (key, points) in zip(panels, rates.items(), strict=True):
        axes.plot(list(points), list(points.values()), _marker(points), color=COLOURS[0])
        set_round_axes(axes, key)
        axes.set_ylim(bottom=0)
    for axes in panels[:-1]:
        axes.set_xlabel("")
    return figure


def epsilon_curve(run: Run) -> InlineFigure | None:
    """Draw epsilon by round, with what was planned for the end; None without differential privacy."""
    points = run.points("epsilon")
    if not points:
        return None
    figure, axes = new_axes(4.6, 2.6)
    axes.plot(list(points), list(points.values()), _marker(points), color=COLOURS[0])
    if planned := (run.summary.privacy or {}).get("planned-epsilon"):
        axes.axhline(planned, linestyle=":", color="#999999", label="planned")
        axes.legend(frameon=False, fontsize="small", loc="lower right")
    set_round_axes(axes, "epsilon so far")
    axes.set_ylim(bottom=0)
    return figure

"""The pictures of a report, each a figure of its own."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import mean, stdev
from typing import TYPE_CHECKING

import numpy as np

from ..run_reader import Points, Run, rows_of
from ..summary import seeds_told
from ..terminal import without_middle
from .line_styles import COLOURS, line_style
from .plots import by_round, class_counts, draw_curves, integer_ticks, new_figure, plain

if TYPE_CHECKING:
    from .svg_figure import InlineFigure

MULTIPLES = 12  # clients beyond which there is a heat map
COLUMNS = 3
WIDE = 20  # characters of a client's name above its picture
COVERED = 2.2  # points by which a line is broader than one that is the same
LABEL = 40  # characters of a line's name, beyond which two do not stand side by side
SPLIT = ("train", "evaluate", "server")


def curve_of(run: Run, name: str) -> "InlineFigure":
    """A held-out figure by round."""
    figure = new_figure(4.6, 3.1)
    draw_curves(figure.subplots(), run.metrics, name)
    return figure


def bands(lines: Mapping[str, Sequence[Points]], ylabel: str, title: str = "") -> "InlineFigure":
    """A line for each group of runs that differ in their seed: the mean of those that have the round, and a
    band of one sample standard deviation (n - 1) where they are two at least."""
    columns = 2 if max(map(len, lines), default=0) <= LABEL else 1
    figure = new_figure(7, 3.7 + 0.17 * -(-len(lines) // columns))
    axes = figure.subplots()
    seeds = seeds_told(list(map(len, lines.values())))
    means = [_means(runs) for runs in lines.values()]
    for number, (label, runs) in enumerate(lines.items()):
        values = {r: [run[r] for run in runs if r in run] for r in means[number]}
        style = line_style(number, len(values))
        covering = sum(later == means[number] for later in means[number + 1 :])
        style["linewidth"] += COVERED * covering  # seen on both sides of those that cover it
        axes.plot(list(values), list(means[number].values()), label=plain(label), **style)
        band = {r: (mean(v), stdev(v)) for r, v in values.items() if len(v) > 1}
        low, high = [m - s for m, s in band.values()], [m + s for m, s in band.values()]
        axes.fill_between(list(band), low, high, color=style["color"], alpha=0.15, linewidth=0)
    by_round(axes, ylabel)
    note = f"mean of {seeds} seeds, band: ± sample standard deviation" if seeds else ""
    axes.set_title("\n".join(filter(None, (plain(title), note))), fontsize="medium")
    if lines:
        figure.legend(
            loc="outside lower center", ncols=columns, frameon=False, fontsize="small", handlelength=4
        )
    return figure


def _means(runs: Sequence[Points]) -> Points:
    """By round, the mean of those that have it."""
    rounds = sorted({r for run in runs for r in run})
    return {r: mean([run[r] for run in runs if r in run]) for r in rounds}


def per_client(run: Run) -> "InlineFigure | None":
    """The figure of comparison by round, of each client: small multiples, or a heat map where they are many;
    None where clients evaluated nothing."""
    points = run.client_points()
    if not points:
        return None
    return _multiples(run, points) if len(points) <= MULTIPLES else _heat_map(run, points)


def _multiples(run: Run, points: Mapping[int, Points]) -> "InlineFigure":
    columns = min(COLUMNS, len(points))
    lines = -(-len(points) // columns)
    figure = new_figure(4.6, 0.6 + max(2.4, 1.3 * lines))
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat:
        axes.set_visible(False)
    names = without_middle([run.client_names.get(i, f"client {i}") for i in points], WIDE)
    for axes, name, values in zip(grid.flat, names, points.values(), strict=False):
        axes.set_visible(True)
        for other in points.values():
            axes.plot(
                list(other), list(other.values()), _point(other), color="#999999", alpha=0.4, linewidth=0.6
            )
        axes.plot(list(values), list(values.values()), _point(values), color=COLOURS[0], linewidth=1.6)
        axes.set_title(plain(name), fontsize="small")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        integer_ticks(axes)
    figure.supxlabel("round", fontsize="small")
    figure.supylabel(run.by, fontsize="small")
    return figure


def _point(line: Points) -> str:
    """How a line of one point is to be seen, which has no length."""
    return "o" if len(line) == 1 else "-"


def _heat_map(run: Run, points: Mapping[int, Points]) -> "InlineFigure":
    rounds = sorted({r for values in points.values() for r in values})
    table = np.array([[values.get(r, np.nan) for r in rounds] for values in points.values()])
    figure = new_figure(4.6, 3.6)
    axes = figure.subplots()
    edges = (0.5, len(rounds) + 0.5, len(points) - 0.5, -0.5)
    image = axes.imshow(table, aspect="auto", interpolation="none", cmap="cividis", extent=edges)
    figure.colorbar(image, label=run.by)
    axes.set(xlabel="round", ylabel="client")
    integer_ticks(axes)
    if rounds != list(range(1, len(rounds) + 1)):
        axes.set_xlabel("evaluated round")
    if list(points) != list(range(len(points))):
        axes.set_ylabel("clients that evaluated, in order")
    return figure


def counts_of(run: Run) -> "InlineFigure | None":
    """Class counts by client, from ``partitions.csv``; None where there is no such file."""
    counts: dict[int, dict[str, int]] = {}
    for row in rows_of(run.folder / "partitions.csv"):
        counts.setdefault(int(row["partition"]), {})[row["class"]] = int(row["examples"])
    if not counts:
        return None
    table = np.array([list(line.values()) for line in counts.values()])
    return class_counts(table, list(counts[min(counts)]), "", list(run.client_names.values()))


def seconds_split(run: Run) -> "InlineFigure | None":
    """Seconds a round by what they were spent on; None where the run did not tell."""
    rounds = [int(row["round"]) for row in run.metrics]
    parts = {part: run.points(f"{part}-seconds") for part in SPLIT}
    if not any(parts.values()):
        return None
    figure = new_figure(4.6, 2.6)
    axes = figure.subplots()
    edges = np.array([*(r - 0.5 for r in rounds), rounds[-1] + 0.5])
    below = np.zeros(len(rounds))
    for (part, points), colour, hatch in zip(parts.items(), COLOURS, ("", "//", ".."), strict=False):
        above = below + [points.get(r, 0.0) for r in rounds]
        axes.stairs(
            above, edges, baseline=below, fill=True, facecolor=colour, hatch=hatch, label=part,
            edgecolor="white", linewidth=0,
        )  # fmt: skip
        below = above
    by_round(axes, "seconds")
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize="small")
    return figure


def searched(trials: Sequence[Mapping[str, str]], key: str, by: str) -> "InlineFigure | None":
    """The value of each trial against a searched key; None where no trial has both. The key's axis is a
    logarithmic one where its values are positive and differ by a factor of ten."""
    told = [trial for trial in trials if trial.get(key) and trial.get("value")]
    if not told:
        return None
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    figure = new_figure(4.6, 3.1)
    axes = figure.subplots()
    places: list[float] | list[str] = [trial[key] for trial in told]
    with suppress(ValueError):
        numbers = places = [float(place) for place in places]
        if min(numbers) > 0 and max(numbers) >= 10 * min(numbers):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
    axes.plot(places, [float(trial["value"]) for trial in told], "o", color=COLOURS[0])
    axes.set(xlabel=key, ylabel=plain(by))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure

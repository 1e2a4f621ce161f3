"""Figures saved as PNG in a run's folder. Matplotlib is slow to import: it is imported when one is drawn."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...core.files import csv_lines, no_formula, write_atomically
from ...core.ground.collector import no_collection
from ...core.ground.columns import CLIENT_MEAN, TEST
from ...job.inputs import RunInputs
from ...records.metrics import percent, with_unit
from ..rare_event import AUROC, leading_by_round, led_by_rare_event
from ..run_reader import CURVES, Points, Run
from ..terminal import shorten_middle
from .drawer import begun

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .svg_figure import InlineFigure

COLOURS = ("#0077bb", "#ee7733", "#009988", "#cc3311", "#33bbee", "#ee3377")
"""Paul Tol's vibrant scheme, safe for the colour-blind."""
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
MARKED_POINTS = 20  # approximate number of markers on a line
HANDLE, CHARACTER = 0.75, 0.068  # inches of a legend's line, and of a character of its label
SEEN = 0.005  # of the range of all lines, by which two differ that are seen as two


def line_style(number: int, points: int = 0) -> dict[str, Any]:
    """Return Matplotlib's arguments for line ``number``, counted from 0, of a figure.

    Lines 0 to 35 differ in dashes or marker, lines 0 to 17 also in colour or marker.
    """
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
        "linewidth": 1.4,
        "markevery": max(1, -(-points // MARKED_POINTS)),
    }


DARKEST = 0.3  # start of the colour map that is used
NAME_LENGTH = 24  # characters of a class's name
TICK_LENGTH = 14  # characters of a client's name below an axis
FLAT = 40  # characters of all names together, above which they are turned
MAX_NAMED = 8  # clients that are shown by name
MAX_COLUMNS = 4  # figures of metrics side by side
MAX_CLIENTS_DRAWN = 2000  # of a heat map; more are drawn as means of neighbours
MAX_BARS = 30  # clients or classes, above which counts are a heat map


def plot_partitions(path: Path, inputs: RunInputs) -> None:
    """Write each client's number of training examples by class, as a figure and as CSV beside it.

    Without classes there is one count per client.
    """
    dataset, shares = inputs.dataset, inputs.partitions.train
    names = [""]
    labels = np.zeros(len(dataset.train), np.int64)
    if dataset.has_classes:
        names = dataset.output_names
        labels = dataset.train.columns["y"]
    counts = shares.counts(labels, len(names))
    clients = np.repeat(np.arange(len(counts)), len(names)).tolist()
    table = zip(clients, cycle(map(no_formula, names)), counts.ravel().tolist(), strict=False)
    write_atomically(path.with_suffix(".csv"), csv_lines(("partition", "class", "examples"), table))
    figure = counts, names, inputs.config.partition
    if not begun(path, class_counts, *figure):
        save_figure(class_counts(*figure), path)


def class_counts(
    counts: NDArray[np.int64], names: list[str], title: str, client_names: list[str] | None = None
) -> "InlineFigure":
    """Draw counts of training examples (clients, classes) as stacked bars, or as a heat map if many.

    Up to `MAX_NAMED` clients are shown by name, if they have names.
    """
    clients, classes = counts.shape
    figure, axes = new_axes(5, 3.4)
    axes.set(xlabel="client", title=plain(title))
    names = list(map(plain, shorten_middle(names, NAME_LENGTH)))
    if clients > MAX_BARS or classes > MAX_BARS:
        means, edges = _of_neighbours(counts), (-0.5, clients - 0.5, classes - 0.5, -0.5)
        image = axes.imshow(means.T, aspect="auto", interpolation="none", cmap="cividis", extent=edges)
        figure.colorbar(image, label="training examples")
        integer_ticks(axes)
        axes.set_ylabel("class")
        if classes <= MAX_BARS:
            axes.set_yticks(range(classes), names)
        return figure
    bottom = np.zeros(clients, np.int64)
    for label, (name, colour) in enumerate(zip(names, _colours(classes), strict=True)):
        hatch = "//" if label % 2 else ""
        axes.bar(
            range(clients), counts[:, label], bottom=bottom, color=colour, label=name, hatch=hatch,
            edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        bottom += counts[:, label]
    axes.set_ylabel("training examples")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xticks(range(clients))
    if client_names and clients <= MAX_NAMED:
        ticks = list(map(plain, shorten_middle(client_names, TICK_LENGTH)))
        turned = sum(map(len, ticks)) > FLAT
        axes.set_xticklabels(ticks, rotation=15 if turned else 0, ha="right" if turned else "center")
    axes.tick_params(axis="x", labelsize="small" if clients > 15 or client_names else "medium")
    if classes > 1:
        figure.legend(title="class", loc="outside right upper", reverse=True, frameon=False, fontsize="small")
    return figure


def _of_neighbours(counts: NDArray[np.int64]) -> NDArray:
    """Return the counts (clients, classes), those of more clients than are drawn as means of neighbours."""
    starts = np.arange(0, len(counts), -(-len(counts) // MAX_CLIENTS_DRAWN))
    return np.add.reduceat(counts, starts) / np.diff(np.append(starts, len(counts)))[:, None]


def _colours(count: int) -> list[tuple[float, float, float, float]]:
    """Return colours from dark to bright, visible to the colour-blind; none as dark as a dark page."""
    from matplotlib import colormaps

    return [colormaps["cividis"](DARKEST + (1 - DARKEST) * i / max(1, count - 1)) for i in range(count)]


def plot_curves(folder: Path) -> None:
    """Write a run's `curves` as ``curves.png``, unless no round is done."""
    run, path = Run.read(folder), folder / "curves.png"
    if not begun(path, curves, run) and (figure := curves(run)).axes:
        save_figure(figure, path)


def curves(run: Run) -> "InlineFigure":
    """Draw the held-out and training metrics by round; the figure is empty if no round is done."""
    names = metric_names(run)
    columns = min(len(names), MAX_COLUMNS)
    lines = -(-len(names) // MAX_COLUMNS)
    figure = new_figure(4.5 * (columns or 2), 3.9 * max(lines, 1))
    if names:
        panels = figure.subplots(lines, columns, squeeze=False).flat
        for axes in panels[len(names) :]:
            axes.set_visible(False)
        for axes, name in zip(panels, names, strict=False):
            draw_curves(axes, run, name)
        legend_below(figure)
        figure.suptitle(plain(run.title), fontsize="medium")
    return figure


def metric_names(run: Run) -> list[str]:
    """Return the names of the metrics with values in ``metrics.csv``, the first as `leading_by_round` has it.

    None before round 1. Columns by class are left out, and those that are empty, as under privacy.
    """
    columns = run.metrics[0] if run.metrics else {}
    names = [name.removeprefix(CLIENT_MEAN) for name in columns if name.startswith(CLIENT_MEAN)]
    names += run.told.metrics if run.told else ()
    found = [name for name in names if not name.startswith(f"{TEST}-") and name not in run.class_columns]
    prefixes = run.told.curves if run.told else CURVES
    drawn = [name for name in found if any(run.points(prefix + name) for prefix in prefixes)]
    is_rare = led_by_rare_event(run).main_metric == AUROC
    first = leading_by_round(run.main_metric, is_rare, drawn)
    return sorted(drawn, key=lambda name: name != first)


def draw_curves(axes: "Axes", run: Run, name: str, at: Mapping[int, float] | None = None) -> None:
    """Draw a metric by round; a round without a value leaves no gap. ``at`` says where to draw a round."""
    factor, curves = percent(name), run.told.curves if run.told else CURVES
    found: dict[str, Points] = {}
    for prefix, label in curves.items():
        if points := run.points(prefix + name):
            found[label] = {server_round: factor * value for server_round, value in points.items()}
    for number, label in enumerate(curves.values()):
        if line := found.get(label):
            style = line_style(number, len(line))
            xs = [at[r] if at else r for r in line]
            axes.plot(xs, list(line.values()), label=f"{label}{lies_on(found, label)}", **style)
    set_round_axes(axes, name)


def lies_on(lines: Mapping[str, Points], label: str) -> str:
    """Return what a label adds: which earlier line its line cannot be told from by eye; or nothing."""
    values = [value for points in lines.values() for value in points.values()]
    seen = SEEN * (max(values, default=0.0) - min(values, default=0.0))
    line = lines[label]
    for earlier, points in lines.items():
        if earlier == label:
            break
        if points.keys() == line.keys() and all(abs(points[r] - line[r]) <= seen for r in line):
            return f"\nlies on {earlier}"
    return ""


def legend_below(figure: "InlineFigure", columns: int = 2, **how: Any) -> None:
    """Add a legend of all axes below them, where it covers no line; long labels stand below each other."""
    found = [axes.get_legend_handles_labels() for axes in figure.axes]
    lines = {label: line for pair in found for line, label in zip(*pair, strict=True)}
    if lines:
        longest = max(len(part) for label in lines for part in label.split("\n"))
        fits = columns * (HANDLE + CHARACTER * longest) <= figure.get_figwidth()
        figure.legend(
            list(lines.values()), list(lines), loc="outside lower center",
            ncols=columns if fits and len(lines) > 2 else 1, frameon=False, fontsize="small", **how,
        )  # fmt: skip


def set_round_axes(axes: "Axes", ylabel: str) -> None:
    """Format axes whose x axis is the round."""
    axes.set(xlabel="round", ylabel=plain(with_unit(ylabel)))
    open_grid(axes)
    integer_ticks(axes)


def open_grid(axes: "Axes") -> None:
    """Draw a faint grid, and of the frame only the left and the lower line."""
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def set_cost_axis(axes: "Axes", cost: str) -> None:
    """Format an x axis that is no longer the round's: of what the rounds cost, in their unit."""
    from matplotlib.ticker import AutoLocator

    axes.xaxis.set_major_locator(AutoLocator())
    axes.set_xlabel(cost)


def integer_ticks(axes: "Axes", most: int | Literal["auto"] = "auto") -> None:
    """Set ticks of the x axis at whole numbers only, and at most so many."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(most, integer=True, min_n_ticks=1))


def plain(text: str) -> str:
    """Escape dollar signs, which Matplotlib would read as the start of a formula."""
    return text.replace("$", r"\$")


def new_figure(width: float, height: float) -> "InlineFigure":
    """Return an empty figure, in inches, with a layout that leaves room for legends outside the axes."""
    with no_collection():
        from .svg_figure import InlineFigure

    return InlineFigure(figsize=(width, height), layout="constrained")


def new_axes(width: float, height: float) -> "tuple[InlineFigure, Axes]":
    """Return a `new_figure` and its only axes."""
    figure = new_figure(width, height)
    return figure, figure.subplots()


def save_figure(figure: "InlineFigure", path: Path) -> None:
    """Write the figure as PNG, atomically."""
    write_atomically(path, figure.as_png())

"""Pictures that a run's folder has as PNG. Matplotlib is imported when one is drawn: it takes a while."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...core.files import csv_text, write_atomically
from ...federation.inputs import RunInputs
from ...records.columns import CLIENT_MEAN, GLOBAL, TEST
from ..run_reader import Run
from ..terminal import without_middle
from .line_styles import line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .svg_figure import InlineFigure

DARKEST = 0.3  # of the colour map
NAME = 24  # characters of a name
TICK = 14  # characters of a name below an axis
NAMED = 8  # clients that there is room to name
BARS = 30  # clients and classes, beyond which counts are a heat map
CURVES = (
    ("", "clients, held out (mean over examples)"),
    (GLOBAL, "global model, held out"),
    ("train-", "clients, training (weighted mean)"),
)
"""Columns of ``metrics.csv`` by their prefix, and what they are."""


def plot_partitions(path: Path, inputs: RunInputs) -> None:
    """How many training examples of each class each client has: a picture, and the counts beside it as CSV;
    of numbers, how many examples."""
    dataset, rows = inputs.dataset, inputs.partitions.train
    names = [""]
    labels = np.zeros(len(dataset.train), np.int64)
    if dataset.has_classes:
        told = dataset.class_names
        names = [told[i] if i < len(told) else str(i) for i in range(dataset.spec.outputs)]
        labels = dataset.train.columns["y"]
    counts = np.array([np.bincount(labels[r], minlength=len(names)) for r in rows])
    told_counts = [
        {"partition": partition, "class": name, "examples": int(count)}
        for partition, line in enumerate(counts)
        for name, count in zip(names, line, strict=True)
    ]
    write_atomically(path.with_suffix(".csv"), csv_text(("partition", "class", "examples"), told_counts))
    save_figure(class_counts(counts, names, inputs.config.partition), path)


def class_counts(
    counts: NDArray[np.int64], names: list[str], title: str, client_names: list[str] | None = None
) -> "InlineFigure":
    """Training examples, (clients, classes): as stacked bars, as a heat map where clients are many. Few
    clients stand by their names, where they have some."""
    clients, classes = counts.shape
    figure = new_figure(5, 3.4)
    axes = figure.subplots()
    axes.set(xlabel="client", title=plain(title))
    names = list(map(plain, without_middle(names, NAME)))
    if clients > BARS or classes > BARS:
        image = axes.imshow(counts.T, aspect="auto", interpolation="none", cmap="cividis")
        figure.colorbar(image, label="training examples")
        integer_ticks(axes)
        axes.set_ylabel("class")
        if classes <= BARS:
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
    axes.set_xticks(range(clients))
    if client_names and clients <= NAMED:
        axes.set_xticklabels(map(plain, without_middle(client_names, TICK)), rotation=15, ha="right")
    axes.tick_params(axis="x", labelsize="small" if clients > 15 or client_names else "medium")
    if classes > 1:
        figure.legend(title="class", loc="outside right upper", reverse=True, frameon=False, fontsize="small")
    return figure


def _colours(count: int) -> list[tuple[float, float, float, float]]:
    """From dark to bright, which those who do not see every colour see too; none as dark as a page."""
    from matplotlib import colormaps

    return [colormaps["cividis"](DARKEST + (1 - DARKEST) * i / max(1, count - 1)) for i in range(count)]


def plot_curves(folder: Path) -> None:
    """Write a run's `curves` as ``curves.png``; nothing if no round is done."""
    figure = curves(Run.read(folder))
    if figure.axes:
        save_figure(figure, folder / "curves.png")


def curves(run: Run) -> "InlineFigure":
    """The held-out figures by round, and in training; empty if no round is done."""
    names = figure_names(run.metrics)
    figure = new_figure(4.5 * (len(names) or 2), 3.9)
    if names:
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            draw_curves(axes, run.metrics, name)
        figure.suptitle(plain(run.title), fontsize="medium")
    return figure


def figure_names(rows: list[dict[str, str]]) -> list[str]:
    """The held-out figures of ``metrics.csv``, the loss first; none before the first round."""
    columns = rows[0] if rows else {}
    names = [name.removeprefix(CLIENT_MEAN) for name in columns if name.startswith(CLIENT_MEAN)]
    return [name for name in names if not name.startswith(f"{TEST}-")]


def draw_curves(axes: "Axes", rows: list[dict[str, str]], name: str) -> None:
    """A figure by round; a round that has none leaves no gap."""
    for number, (prefix, label) in enumerate(CURVES):
        points = [(int(r["round"]), float(r[prefix + name])) for r in rows if r.get(prefix + name)]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, **line_style(number, len(points)))
    by_round(axes, name)
    if axes.lines:
        axes.legend(frameon=False, fontsize="small")


def by_round(axes: "Axes", ylabel: str) -> None:
    """Name the axes of something by round."""
    axes.set(xlabel="round", ylabel=ylabel)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    integer_ticks(axes)


def integer_ticks(axes: "Axes") -> None:
    """Ticks below at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def plain(text: str) -> str:
    """Somebody's words, in which a dollar begins no formula."""
    return text.replace("$", r"\$")


def new_figure(width: float, height: float) -> "InlineFigure":
    """An empty figure, in inches, which makes room for what stands outside its axes."""
    from .svg_figure import InlineFigure

    return InlineFigure(figsize=(width, height), layout="constrained")


def save_figure(figure: "InlineFigure", path: Path) -> None:
    """Write the figure as PNG, whole or not at all."""
    write_atomically(path, figure.as_png())

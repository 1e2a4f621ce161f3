"""Pictures of a run."""

import csv
import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from .config import RunConfig
from .files import write_atomically
from .task import dataset_of, partitions_of

LABELLED_CLIENTS = 40


def plot_partitions(path: Path, config: RunConfig) -> None:
    """Class counts of every client's training examples, as stacked bars."""
    dataset = dataset_of(config)
    rows = partitions_of(config).train
    classes = dataset.spec.classes
    counts = np.array([np.bincount(dataset.train.labels[r], minlength=classes) for r in rows])
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    colours = _colours(classes)
    bottom = np.zeros(len(rows), int)
    for label in range(classes):
        axes.bar(range(len(rows)), counts[:, label], bottom=bottom, color=colours[label], label=label)
        bottom += counts[:, label]
    axes.set(xlabel="client", ylabel="training examples", title=config.partition)
    if len(rows) <= LABELLED_CLIENTS:
        axes.set_xticks(range(len(rows)))
    if classes <= 20:
        figure.legend(title="class", loc="outside right upper")
    save_figure(figure, path)


class InlineFigure(Figure):
    """A figure that a notebook shows without pyplot, whose windows and state a library leaves alone."""

    def _repr_png_(self) -> bytes:
        return as_png(self)


def plot_curves(path: Path, metrics: Path) -> None:
    """Write `curves`; nothing if no round is done."""
    figure = curves(metrics)
    if figure.axes:
        save_figure(figure, path)


def curves(metrics: Path) -> Figure:
    """Loss and accuracy by round, from ``metrics.csv``; empty if no round is done."""
    with metrics.open(newline="") as file:
        rows = list(csv.DictReader(file))
    figure = InlineFigure(figsize=(9, 3.5), layout="constrained")
    if not rows:
        return figure
    for axes, name in zip(figure.subplots(1, 2), ("loss", "accuracy"), strict=True):
        for prefix, label in (
            ("train-", "clients, training (weighted mean)"),
            ("", "clients, held out (mean over examples)"),
            ("global-", "global model, held out"),
        ):
            points = [(int(r["round"]), float(r[prefix + name])) for r in rows if r.get(prefix + name)]
            if points:
                axes.plot(*zip(*points, strict=True), marker=".", label=label)
        axes.set(xlabel="round", ylabel=name)
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def _colours(count: int) -> list[tuple[float, float, float, float]]:
    from matplotlib import colormaps

    return [colormaps["tab20" if count > 10 else "tab10"](i % 20) for i in range(count)]


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure as PNG, whole or not at all."""
    write_atomically(path, as_png(figure))


def as_png(figure: Figure) -> bytes:
    """The figure's picture."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()

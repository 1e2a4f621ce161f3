"""Pictures of a run. Matplotlib is imported when one is drawn: it takes half a second."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..assembly import dataset_of, partitions_of
from ..config import RunConfig
from ..files import write_atomically

if TYPE_CHECKING:
    from .figures import InlineFigure

LABELLED_CLIENTS = 40


def plot_partitions(path: Path, config: RunConfig) -> None:
    """Class counts of every client's training examples, as stacked bars."""
    dataset = dataset_of(config)
    rows = partitions_of(config).train
    classes = dataset.spec.classes
    counts = np.array([np.bincount(dataset.train.columns["y"][r], minlength=classes) for r in rows])
    figure = new_figure(7, 4)
    axes = figure.subplots()
    colours = _colours(classes)
    names = dataset.class_names or range(classes)
    bottom = np.zeros(len(rows), int)
    for label in range(classes):
        axes.bar(range(len(rows)), counts[:, label], bottom=bottom, color=colours[label], label=names[label])
        bottom += counts[:, label]
    axes.set(xlabel="client", ylabel="training examples", title=config.partition)
    if len(rows) <= LABELLED_CLIENTS:
        axes.set_xticks(range(len(rows)))
    if classes <= 20:
        figure.legend(title="class", loc="outside right upper")
    save_figure(figure, path)


def plot_curves(path: Path, metrics: Path) -> None:
    """Write `curves`; nothing if no round is done."""
    figure = curves(metrics)
    if figure.axes:
        save_figure(figure, path)


def curves(metrics: Path) -> "InlineFigure":
    """Loss and accuracy by round, from ``metrics.csv``; empty if no round is done."""
    with metrics.open(newline="") as file:
        rows = list(csv.DictReader(file))
    figure = new_figure(9, 3.5)
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


def new_figure(width: float, height: float) -> "InlineFigure":
    """An empty figure, in inches, which makes room for what stands outside its axes."""
    from .figures import InlineFigure

    return InlineFigure(figsize=(width, height), layout="constrained")


def save_figure(figure: "InlineFigure", path: Path) -> None:
    """Write the figure as PNG, whole or not at all."""
    write_atomically(path, figure.as_png())

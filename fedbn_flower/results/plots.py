"""Pictures of a run. Matplotlib is imported when one is drawn: it takes half a second."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..assembly import TEST, dataset_of, partitions_of
from ..config import RunConfig
from ..files import write_atomically
from .metrics import CLIENT_MEAN

if TYPE_CHECKING:
    from .figures import InlineFigure

LABELLED_CLIENTS = 40


def plot_partitions(path: Path, config: RunConfig) -> None:
    """Class counts of every client's training examples, as stacked bars; their number without classes."""
    dataset = dataset_of(config)
    rows = partitions_of(config).train
    classes = dataset.spec.outputs if dataset.has_classes else 1
    labels = dataset.train.columns["y"] if dataset.has_classes else np.zeros(len(dataset.train), np.int64)
    counts = np.array([np.bincount(labels[r], minlength=classes) for r in rows])
    figure = new_figure(7, 4)
    axes = figure.subplots()
    colours = _colours(classes)
    bottom = np.zeros(len(rows), int)
    for label in range(classes):
        name = dataset.class_names[label] if label < len(dataset.class_names) else label
        axes.bar(range(len(rows)), counts[:, label], bottom=bottom, color=colours[label], label=name)
        bottom += counts[:, label]
    axes.set(xlabel="client", ylabel="training examples", title=config.partition)
    if len(rows) <= LABELLED_CLIENTS:
        axes.set_xticks(range(len(rows)))
    if 1 < classes <= 20:
        figure.legend(title="class", loc="outside right upper")
    save_figure(figure, path)


def plot_curves(path: Path, metrics: Path) -> None:
    """Write `curves`; nothing if no round is done."""
    figure = curves(metrics)
    if figure.axes:
        save_figure(figure, path)


def curves(metrics: Path) -> "InlineFigure":
    """The held-out figures by round, and in training, from ``metrics.csv``; empty if no round is done."""
    with metrics.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        return new_figure(9, 3.5)
    names = [name.removeprefix(CLIENT_MEAN) for name in rows[0] if name.startswith(CLIENT_MEAN)]
    names = [name for name in names if not name.startswith(f"{TEST}-")]
    figure = new_figure(4.5 * len(names), 3.5)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
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
        if axes.lines:
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

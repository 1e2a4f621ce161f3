"""The figures of the further metrics, each drawn from a state: of all clients, or of one.

Curves of two classes of all sites on the same axes: ROC, and precision by recall.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.metrics.scores import CONFIDENCE, COUNT, HITS, Curve, curve

from ..records.cases import SCORE, TARGET
from ..results.plotting.plots import COLOURS, FLAT, legend_below, line_style, new_figure, plain
from ..results.terminal import shorten_middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from ..results.plotting.svg_figure import InlineFigure

MAX_CELLS = 12  # classes, above which a confusion matrix has no numbers and no names
MAX_LINES = 10  # classes, above which the first ones are drawn
NAME_LENGTH = 14

Draw = Callable[[NDArray, Sequence[str]], "InlineFigure"]


def confusion_matrix(total: NDArray, names: Sequence[str]) -> InlineFigure:
    """Draw the share of each true class that is predicted as each class, with the counts.

    ``total`` is (C, C), true classes down, or (L, 2, 2) of labels: then a row has a label's four counts.
    """
    if total.ndim == 3:
        cells, columns = total.reshape(len(total), 4), ["TN", "FP", "FN", "TP"]
    else:
        cells, columns = total, list(names)
    shares = cells / np.maximum(cells.sum(1, keepdims=True), 1)
    figure = new_figure(4.6, 4.0)
    axes = figure.subplots()
    image = axes.imshow(shares, vmin=0, vmax=1, cmap="cividis", interpolation="none", aspect="auto")
    figure.colorbar(image, label="share of the row")
    axes.set(
        xlabel="predicted" if total.ndim == 2 else "", ylabel="true class" if total.ndim == 2 else "label"
    )
    if len(cells) <= MAX_CELLS:
        ticks = _short(columns)
        axes.set_xticks(range(len(columns)), ticks, rotation=30 if sum(map(len, ticks)) > FLAT else 0)
        axes.set_yticks(range(len(cells)), _short(names))
        for (row, column), count in np.ndenumerate(cells):
            ink = "white" if shares[row, column] < 0.5 else "#000001"  # black follows the page's colours
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=ink, fontsize="small")
    return figure


def roc_curve(total: NDArray, names: Sequence[str]) -> InlineFigure:
    """Draw the ROC curve of each class's histograms, (k, 2, T + 1)."""
    figure, axes = unit_axes("1 - specificity", "sensitivity")
    _draw_curves(axes, total, names, lambda c: (c.false_positive_rate, c.sensitivity))
    axes.plot([0, 1], [0, 1], ":", color="#999999", linewidth=1)
    legend_below(figure)
    return figure


def precision_recall_curve(total: NDArray, names: Sequence[str]) -> InlineFigure:
    """Draw precision by recall (sensitivity) of each class's histograms, (k, 2, T + 1), as steps.

    Dots are the share of positives, the precision of a model that knows nothing.
    """
    figure, axes = unit_axes("recall (sensitivity)", "precision")
    _draw_curves(axes, total, names, lambda c: (c.sensitivity[1:], c.precision[1:]), drawstyle="steps-pre")
    for line, histogram in zip([*axes.lines], _with_both(total), strict=True):
        positives = histogram[1].sum() / histogram.sum()
        axes.axhline(positives, linestyle=":", color=line.get_color(), linewidth=1)
    legend_below(figure)
    return figure


def reliability_diagram(total: NDArray, names: Sequence[str]) -> InlineFigure:
    """Draw the share of hits by the mean probability of each bin, (3, bins), and how many examples it has.

    A bin of a single example has no point: its share is 0 or 1, whatever the model.
    """
    figure, axes = unit_axes("mean predicted probability", "share of hits")
    axes.plot([0, 1], [0, 1], ":", color="#999999", linewidth=1)
    filled = total[COUNT] > 1
    count, hits, confidence = (total[row][filled] for row in (COUNT, HITS, CONFIDENCE))
    axes.plot(confidence / count, hits / count, "o-", color=COLOURS[0], markersize=4, linewidth=1.4)
    edges = np.linspace(0, 1, total.shape[1] + 1)
    share = total[COUNT] / max(total[COUNT].sum(), 1)
    axes.stairs(share, edges, fill=True, alpha=0.25, color=COLOURS[1], label="share of examples")
    legend_below(figure)
    return figure


RELIABILITY = "Reliability diagram"
FIGURES: dict[str, tuple[str, Draw]] = {
    "Confusion matrix": ("confusion-matrix", confusion_matrix),
    "ROC curve": ("score-histogram", roc_curve),
    "Precision and recall": ("score-histogram", precision_recall_curve),
    RELIABILITY: ("calibration", reliability_diagram),
}
"""By caption the state that a figure is drawn from, and the function that draws it."""


def unit_axes(xlabel: str, ylabel: str) -> tuple[InlineFigure, Axes]:
    """Return a figure and its axes, both from 0 to 1."""
    figure = new_figure(4.2, 3.6)
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _draw_curves(
    axes: Axes,
    total: NDArray,
    names: Sequence[str],
    points: Callable[[Curve], tuple[NDArray[np.float64], NDArray[np.float64]]],
    **how: Any,
) -> None:
    """Draw a line for each of the first `MAX_LINES` classes that have both kinds of examples."""
    names = names[1:] if len(total) == 1 else names  # of two classes, class 1
    for number, (histogram, name) in enumerate(zip(total[:MAX_LINES], _short(names), strict=False)):
        if not histogram.sum(1).all():
            continue
        changed = np.concatenate([[True], histogram.any(0)[::-1]])  # elsewhere the curve stands still
        with np.errstate(divide="ignore", invalid="ignore"):
            xs, ys = points(curve(histogram))
        changed = changed[len(changed) - len(xs) :]
        style = line_style(number) | {"marker": "", **how}
        axes.plot(xs[changed], ys[changed], label=name, **style)


def _with_both(total: NDArray) -> list[NDArray]:
    """Return the histograms of the first `MAX_LINES` classes that have both kinds of examples."""
    return [histogram for histogram in total[:MAX_LINES] if histogram.sum(1).all()]


def _short(names: Sequence[str]) -> list[str]:
    return list(map(plain, shorten_middle(list(names), NAME_LENGTH)))


OF_ALL: dict[str, Any] = {"color": "#555555", "linewidth": 2.2, "linestyle": "-", "marker": ""}


def roc_curves(cases: Mapping[str, DataFrame], whole: str) -> InlineFigure:
    """Draw the exact ROC curve of each table of cases, with its label; that of ``whole`` is thick."""
    from sklearn.metrics import roc_curve

    figure, axes = unit_axes("1 - specificity", "sensitivity")
    axes.plot([0, 1], [0, 1], ":", color="#999999", linewidth=1)
    for number, (label, table) in enumerate(cases.items()):
        rates, found, _ = roc_curve(table[TARGET], table[SCORE])
        axes.plot(rates, found, label=plain(label), **_style(number, label == whole))
    legend_below(figure, columns=1)
    return figure


def precision_recall_curves(cases: Mapping[str, DataFrame], whole: str) -> InlineFigure:
    """Draw precision by recall of each table of cases, exact, as steps; dots are the shares of positives."""
    from sklearn.metrics import precision_recall_curve

    figure, axes = unit_axes("recall (sensitivity)", "precision")
    for number, (label, table) in enumerate(cases.items()):
        precision, recall, _ = precision_recall_curve(table[TARGET], table[SCORE])
        style = _style(number, label == whole)
        axes.plot(recall, precision, label=plain(label), drawstyle="steps-post", **style)
        axes.axhline(float(table[TARGET].mean()), linestyle=":", color=style["color"], linewidth=1)
    legend_below(figure, columns=1)
    return figure


def _style(number: int, of_all: bool) -> dict[str, Any]:
    return dict(OF_ALL) if of_all else line_style(number) | {"marker": ""}

"""Figures of what was predicted, of gains and of ranks.

Those of the further metrics are drawn from a state, of all clients or of one; curves of two classes also from
single cases, those of all sites on the same axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbn_flower.clients.problems.metrics.scores import CONFIDENCE, COUNT, HITS, Curve, curve, exact_curve

from ..records.cases import SCORE, TARGET
from ..records.metrics import percent, spelt
from ..results.plotting.plots import (
    COLOURS,
    FLAT,
    MARKERS,
    legend_below,
    line_style,
    new_axes,
    open_grid,
    plain,
)
from ..results.terminal import shorten_middle
from .decisions import calibration, decision_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from ..results.plotting.svg_figure import InlineFigure

MAX_CELLS = 12  # classes, above which a confusion matrix has no numbers and no names
MAX_LINES = 10  # classes, above which the first ones are drawn
NAME_LENGTH = 14
ROC_AXES, PRECISION_AXES = ("1 - specificity", "sensitivity"), ("recall (sensitivity)", "precision")

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
    figure, axes = new_axes(4.6, 4.0)
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


Lines = Sequence[tuple[str, Curve, Mapping[str, Any]]]
"""Curves with their labels, and how each is drawn."""


def roc_curve(total: NDArray, names: Sequence[str]) -> InlineFigure:
    """Draw the ROC curve of each class's histograms, (k, 2, T + 1)."""
    return _draw_curves(_of_classes(total, names), precision=False)


def precision_recall_curve(total: NDArray, names: Sequence[str]) -> InlineFigure:
    """Draw precision by recall (sensitivity) of each class's histograms, (k, 2, T + 1)."""
    return _draw_curves(_of_classes(total, names), precision=True)


def _of_classes(total: NDArray, names: Sequence[str]) -> Lines:
    """Return the curves of the first `MAX_LINES` classes that have both kinds of examples."""
    names = _short(names[1:] if len(total) == 1 else names)  # of two classes, class 1
    return [
        (name, curve(histogram), line_style(number))
        for number, (histogram, name) in enumerate(zip(total[:MAX_LINES], names, strict=False))
        if histogram.sum(1).all()
    ]


def _draw_curves(lines: Lines, precision: bool, columns: int = 2) -> InlineFigure:
    """Draw ROC curves, or precision by recall as steps.

    Dots are the diagonal, or the share of positives, the precision of a model that knows nothing.
    """
    figure, axes = unit_axes(*(PRECISION_AXES if precision else ROC_AXES))
    if not precision:
        axes.plot([0, 1], [0, 1], ":", color="#999999", linewidth=1)
    for label, found, style in lines:
        changed = np.concatenate([[True], np.diff(found.tp + found.fp) > 0])  # elsewhere it stands still
        part = Curve(*(column[changed] for column in found))
        xs, ys = part.false_positive_rate, part.sensitivity
        if precision:  # a step from recall 0 to the first is as high as that
            ys = part.tp[1:] / (part.tp + part.fp)[1:]
            xs, ys = part.sensitivity, np.insert(ys, 0, ys[0])
        how = {**style, "marker": "", "drawstyle": "steps-pre" if precision else "default"}
        axes.plot(xs, ys, label=label, **how)
        if precision:
            share = found.tp[-1] / (found.tp[-1] + found.fp[-1])
            axes.axhline(share, linestyle=":", color=style["color"], linewidth=1)
    legend_below(figure, columns)
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
    figure, axes = new_axes(4.2, 3.6)
    axes.set(xlabel=xlabel, ylabel=ylabel, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    open_grid(axes)
    return figure, axes


def _short(names: Sequence[str]) -> list[str]:
    return list(map(plain, shorten_middle(list(names), NAME_LENGTH)))


OF_ALL = {"color": "#555555", "linewidth": 2.2, "linestyle": "-"}


def curves_of_cases(cases: Mapping[str, DataFrame], whole: str, precision: bool) -> InlineFigure:
    """Draw the exact ROC curve, or precision by recall, of each table of cases with its label.

    The curve whose label begins with ``whole`` is thick.
    """
    lines = []
    for number, (label, table) in enumerate(cases.items()):
        found = exact_curve((table[TARGET] == 1).to_numpy(), table[SCORE].to_numpy())
        lines.append((plain(label), found, OF_ALL if label.startswith(whole) else line_style(number)))
    return _draw_curves(lines, precision, columns=1)


def gain_plot(points: Mapping[str, Sequence[tuple[float, float]]], metric: str) -> InlineFigure:
    """Draw a client's metric alone and with the others, a colour for each label, and the diagonal."""
    factor = percent(metric)
    figure, axes = new_axes(5.2, 4.6)
    every = [factor * value for of in points.values() for pair in of for value in pair]
    margin = 0.05 * (max(every) - min(every)) or 0.05
    ends = [min(every) - margin, max(every) + margin]
    axes.plot(ends, ends, "--", color="#888888", linewidth=1)
    for number, (label, of) in enumerate(points.items()):
        x, y = ([factor * pair[i] for pair in of] for i in (0, 1))
        marker, colour = MARKERS[number % len(MARKERS)], COLOURS[number % len(COLOURS)]
        axes.plot(x, y, marker, color=colour, markersize=5, alpha=0.8, label=plain(label))
    unit = ", %" if factor == 100 else ""
    axes.set_xlabel(plain(f"{spelt(metric)} alone{unit}"))
    axes.set_ylabel(plain(f"{spelt(metric)} with the others{unit}"))
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize="small")
    return figure


METHOD_LENGTH = 30  # characters
STEP = 0.5  # between two lines, in units of the axis down


def joined(ranks: Sequence[float], critical_difference: float) -> list[tuple[float, float]]:
    """Return the ends of each longest run of mean ranks that differ by the critical difference at most."""
    found: list[tuple[float, float]] = []
    ordered = sorted(ranks)
    for low in ordered:
        high = max(rank for rank in ordered if rank - low <= critical_difference)
        if high > low and (not found or high > found[-1][1]):
            found.append((low, high))
    return found


def critical_difference_diagram(
    methods: Sequence[str], ranks: Sequence[float], critical_difference: float
) -> InlineFigure:
    """Draw the diagram, the best mean rank to the left."""
    order = np.argsort(ranks, kind="stable")
    names = [plain(name) for name in shorten_middle([methods[i] for i in order], METHOD_LENGTH)]
    places = [float(ranks[i]) for i in order]
    bars = joined(places, critical_difference)
    half, top = -(-len(names) // 2), STEP * (len(bars) + 1)
    figure, axes = new_axes(6.4, 1.2 + 0.24 * half + 0.2 * len(bars))
    last = len(names)
    for number, (name, rank) in enumerate(zip(names, places, strict=True)):
        left = number < half
        down = top + STEP * (number if left else last - 1 - number)
        edge = 1 - 0.05 * last if left else last + 0.05 * last
        axes.plot([rank, rank, edge], [0, down, down], "-", color="#000000", linewidth=0.9)
        aligned = "right" if left else "left"
        axes.text(edge, down, f" {name} ", ha=aligned, va="center", fontsize="small")
    for number, (low, high) in enumerate(bars):
        down = STEP * (number + 1) * 0.8
        axes.plot([low - 0.03, high + 0.03], [down, down], "-", color=COLOURS[0], linewidth=4)
    axes.plot([1, 1 + critical_difference], [-1.4, -1.4], "|-", color=COLOURS[1], linewidth=1.4)
    axes.text(
        1 + critical_difference / 2, -1.6, f"critical difference {critical_difference:.2f}",
        ha="center", va="bottom", fontsize="small",
    )  # fmt: skip
    axes.set_xlim(1 - 0.05 * last, last + 0.05 * last)
    axes.set_ylim(top + STEP * half, -2.4)
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    axes.spines["top"].set_position(("data", 0))
    axes.spines["top"].set_bounds(1, last)
    axes.xaxis.set_ticks_position("top")
    axes.set_xticks(range(1, last + 1))
    axes.set_yticks([])
    return figure


BELOW = 0.25
"""How much of the axis of net benefit is below 0, as a share of the part above."""


def decision_curves(table: DataFrame, event: str) -> InlineFigure:
    """Draw the net benefit by threshold probability: of the model, of all and of nobody."""
    found = decision_curve(table)
    figure, axes = new_axes(4.2, 3.6)
    most = max(float(found["model"].max()), float(found["all"].max()), 0.01)
    axes.set(xlabel=plain(f"threshold probability of {event}"), ylabel="net benefit", xlim=(0, 1))
    axes.set_ylim(-BELOW * most, 1.1 * most)
    styles = (("all", ":", "#999999"), ("nobody", "--", "#999999"), ("model", "-", COLOURS[0]))
    for name, style, colour in styles:
        axes.plot(found["probability"], found[name], style, color=colour, label=name, linewidth=1.4)
    open_grid(axes)
    axes.legend(frameon=False, fontsize="small")
    return figure


def calibration_curve(table: DataFrame, event: str) -> InlineFigure | None:
    """Draw the share of events by mean score with its 95 % interval; None of too few cases for a bin."""
    found = calibration(table)
    if found.empty:
        return None
    figure, axes = new_axes(4.2, 3.6)
    most = 1.05 * float(found[["high", "share", "score"]].max(axis=None))  # of one group there is no high
    axes.set(xlabel="mean score", ylabel=plain(f"share of {event}"), xlim=(0, most), ylim=(0, most))
    axes.plot([0, most], [0, most], ":", color="#999999", linewidth=1)
    lengths = [found["share"] - found["low"], found["high"] - found["share"]]
    axes.errorbar(
        found["score"], found["share"], lengths, fmt="o-", color=COLOURS[0], markersize=4, linewidth=1.4
    )
    open_grid(axes)
    return figure

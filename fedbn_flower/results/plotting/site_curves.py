"""Curves of two classes of all sites on the same axes: ROC, and precision by recall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...records.cases import SCORE, TARGET
from .line_styles import line_style
from .metric_plots import unit_axes
from .plots import legend_below, plain

if TYPE_CHECKING:
    from pandas import DataFrame

    from .svg_figure import InlineFigure

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

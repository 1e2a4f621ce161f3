"""Figures of held-out cases of two classes: decision curves, and calibration in bins of at least 20 cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..decisions import calibration, decision_curve
from .line_styles import COLOURS
from .plots import new_figure, plain

if TYPE_CHECKING:
    from pandas import DataFrame

    from .svg_figure import InlineFigure

BELOW = 0.25
"""How much of the axis of net benefit is below 0, as a share of the part above."""


def decision_curves(table: DataFrame, event: str) -> InlineFigure:
    """Draw the net benefit by threshold probability: of the model, of all and of nobody."""
    found = decision_curve(table)
    figure = new_figure(4.2, 3.6)
    axes = figure.subplots()
    most = max(float(found["model"].max()), float(found["all"].max()), 0.01)
    axes.set(xlabel=plain(f"threshold probability of {event}"), ylabel="net benefit", xlim=(0, 1))
    axes.set_ylim(-BELOW * most, 1.1 * most)
    styles = (("all", ":", "#999999"), ("nobody", "--", "#999999"), ("model", "-", COLOURS[0]))
    for name, style, colour in styles:
        axes.plot(found["probability"], found[name], style, color=colour, label=name, linewidth=1.4)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="small")
    return figure


def calibration_curve(table: DataFrame, event: str) -> InlineFigure | None:
    """Draw the share of events by mean score with its 95 % interval; None of too few cases for a bin."""
    found = calibration(table)
    if found.empty:
        return None
    figure = new_figure(4.2, 3.6)
    axes = figure.subplots()
    most = 1.05 * float(found[["high", "share", "score"]].max(axis=None))  # of one group there is no high
    axes.set(xlabel="mean score", ylabel=plain(f"share of {event}"), xlim=(0, most), ylim=(0, most))
    axes.plot([0, most], [0, most], ":", color="#999999", linewidth=1)
    lengths = [found["share"] - found["low"], found["high"] - found["share"]]
    axes.errorbar(
        found["score"], found["share"], lengths, fmt="o-", color=COLOURS[0], markersize=4, linewidth=1.4
    )
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure

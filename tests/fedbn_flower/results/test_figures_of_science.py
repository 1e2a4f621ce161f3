"""What a reviewer looks for: names as in papers, equal decimals, free lines."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbn_flower.records.metrics import decimals, heading, spelt
from fedbn_flower.records.summary import Summary
from fedbn_flower.results.plotting.comparison_plots import by_site_plot
from fedbn_flower.results.plotting.plots import draw_curves, legend_below, new_figure
from fedbn_flower.results.plotting.report_plots import client_curves
from fedbn_flower.results.run_reader import Run


@pytest.mark.parametrize(
    ("name", "words", "first"),
    [
        ("auroc", "AUROC", "AUROC"),
        ("auroc-Effusion", "AUROC, Effusion", "AUROC, Effusion"),
        ("f1:macro", "F1 (macro)", "F1 (macro)"),
        ("loss", "loss", "Loss"),
        ("average-precision", "average precision", "Average precision"),
        (
            "sensitivity-at:0.9-tube",
            "sensitivity at specificity 0.9, tube",
            "Sensitivity at specificity 0.9, tube",
        ),
        ("dicey", "dicey", "Dicey"),
        ("my_metrics.Brier", "my_metrics.Brier", "My_metrics.Brier"),
        ("", "", ""),
    ],
)
def test_metrics_are_spelt_as_in_papers(name, words, first):
    assert (spelt(name), heading(name)) == (words, first)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("auroc", [0.5, 1.0], 3),
        ("loss", [0.04, None, 0.03], 4),
        ("loss", [0.0], 3),
        ("loss", [], 3),
        ("rmse", [12.3, 4.0], 2),
        ("rmse", [123456.0, 1.0], 0),
        ("loss", [1e-12], 6),
        ("loss", [float("nan"), float("inf"), 2.0], 3),
        ("accuracy", [0.0001], 1),
    ],
)
def test_all_values_of_a_column_have_the_same_decimals(name, values, expected):
    assert decimals(name, values) == expected


@pytest.mark.usefixtures("drawn_figures")
def test_a_legend_covers_no_line():
    rows = [{"round": str(r), "iou": "0.5", "global-iou": "0.4", "pooled-iou": "0.3"} for r in range(1, 4)]
    figure = new_figure(4.6, 3.1)
    axes = figure.subplots()
    draw_curves(axes, Run(Path(), {}, Summary(), rows), "iou")
    legend_below(figure)
    figure.as_png()
    legend, inside = figure.legends[0].get_window_extent(), axes.get_window_extent()
    label = axes.xaxis.label.get_window_extent()
    assert legend.y1 < label.y0 < inside.y0
    assert axes.get_ylabel() == "IoU"


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 10, 1000])
@pytest.mark.usefixtures("drawn_figures")
def test_ticks_below_small_axes_do_not_collide(rounds):
    points = {client: dict.fromkeys(range(1, rounds + 1), 0.5) for client in range(3)}
    run = SimpleNamespace(client_points=lambda metric: points, client_names={}, main_metric="iou")
    figure = client_curves(run)
    figure.as_png()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        labels = [t for t in axes.get_xticklabels() if low <= t.get_position()[0] <= high and t.get_text()]
        boxes = [label.get_window_extent() for label in labels]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert figure.get_supylabel() == "IoU"


def test_a_bar_is_the_interval_of_one_seed_or_the_deviation_over_several():
    values, ends = {"a": {"x": [0.8], "y": [0.6, 0.8], "z": [0.5]}}, {"a": {"x": (0.7, 0.85), "y": None}}
    (axes,) = by_site_plot(values, "auroc", ends=ends).axes
    (bars,) = axes.containers[0][2]
    found = [bar[:, 0].tolist() for bar in bars.get_segments()]
    half = 0.02**0.5  # of 0.6 and 0.8, by n - 1
    assert found == [pytest.approx(of) for of in ([0.7, 0.85], [0.7 - half, 0.7 + half], [0.5, 0.5])]

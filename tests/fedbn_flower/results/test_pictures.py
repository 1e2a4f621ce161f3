"""What is in the pictures: points, bands and shades by hand."""

import html
import io
import json
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fedbn_flower.results.plotting.comparison_plots import by_site_plot, forest_plot
from fedbn_flower.results.plotting.plots import class_counts, curves, line_style, new_axes, new_figure
from fedbn_flower.results.plotting.report_plots import (
    client_curves,
    mean_curves,
    metric_curve,
    partition_counts,
)
from fedbn_flower.results.report import sweep_figure
from fedbn_flower.results.report.runs_by_seed import Sweep
from fedbn_flower.results.report.sweep_page import curves_figure
from fedbn_flower.results.run_reader import Run

from .html_page import page
from .written import change_run, summary_of, write_run, write_sweep

pytestmark = pytest.mark.usefixtures("drawn_figures")


def test_lines_differ_by_more_than_colour():
    styles = [line_style(i) for i in range(18)]
    assert len({(style["linestyle"], style["marker"]) for style in styles}) == 18
    assert len({(style["color"], style["marker"]) for style in styles}) == 18
    assert len({style["color"] for style in styles}) == 6


def test_what_a_page_tells_of_a_line_is_where_it_is_drawn(tmp_path):
    """Each marker's place in the SVG, by its rounds and values; lines that only help are not told."""
    figure = curves(Run.read(write_run(tmp_path / "run")))
    svg = figure.as_svg("it")
    lines = json.loads(html.unescape(re.search("data-told='([^']*)'", svg)[1]))
    assert [*lines[0][1:3], *lines[0][5:]] == ["round", "accuracy, %", [1, 3], [25, 75]]
    drawn = {(float(x), float(y)) for x, y in re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', svg)}
    for place in zip(*lines[0][3:5], strict=True):
        assert min(np.hypot(*np.subtract(place, one)) for one in drawn) < 0.1
    assert "data-told" not in figure.as_svg("it", tells=False)
    assert len(svg) < len(figure.as_svg("it", tells=False))  # hundredths of a point, and the page's font


def test_a_page_tells_the_site_of_a_bar_and_of_no_line_that_only_helps():
    figure = by_site_plot({"a": {"lyon": [0.5]}, "b": {"lyon": [0.25]}}, "accuracy")
    figure.as_svg("it")
    assert [[line[0], *line[5:]] for line in figure.told()] == [["a", [50], ["lyon"]], ["b", [25], ["lyon"]]]


def test_a_page_tells_words_as_they_are_the_last_round_and_what_is_an_end_of_an_interval():
    figure, axes = new_axes(3, 3)
    axes.plot(["fedbn", "a\\$b"], [1, 2], "o")
    axes.plot([0, 1], [0.25, 0.5], "o", label="of\\$two")
    figure.as_svg("it")
    words, numbers = figure.told()
    assert (words[5], words[6], numbers[0], numbers[6]) == (["fedbn", "a$b"], [1, 2], "of$two", [0.25, 0.5])
    figure, axes = new_axes(3, 3)
    axes.plot(range(1, 251), range(250))
    figure.as_svg("it")
    rounds = figure.told()[0][5]
    assert (len(rounds), rounds[0], rounds[-1]) == (100, 1, 250)
    figure = forest_plot([("ly$on", 0.75, 0.5, 1.0)], "accuracy")
    figure.as_svg("it")
    ends, value = ([line[0], *line[5:]] for line in figure.told())
    assert (ends, value) == (["95 % interval", [50, 100], ["ly$on"] * 2], ["", [75], ["ly$on"]])


def test_a_round_that_was_not_evaluated_leaves_no_gap(tmp_path):
    figure = curves(Run.read(write_run(tmp_path / "run")))
    accuracy, loss = figure.axes
    np.testing.assert_allclose(loss.lines[0].get_xydata(), [[1, 2.0], [3, 1.0]])
    np.testing.assert_allclose(accuracy.lines[0].get_xydata(), [[1, 25], [3, 75]])
    assert figure.get_suptitle() == "fedyogi fedbn plain, seed 0\non digits, silos:0-4,5-9, 2 clients"


def test_a_band_is_the_sample_standard_deviation():
    """Of 50 and 70 % at round 1: mean 60, deviation 10 sqrt(2); round 2 has one run and no band."""
    figure = mean_curves({"cell": [{1: 0.5, 2: 0.8}, {1: 0.7}]}, "accuracy", "all $x$")
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 60], [2, 80]])
    corners = axes.collections[0].get_paths()[0].vertices
    assert set(corners[:, 0]) == {1.0}
    deviation = 10 * np.sqrt(2)
    assert [corners[:, 1].min(), corners[:, 1].max()] == pytest.approx([60 - deviation, 60 + deviation])
    assert "mean of 2 seeds, band: ± sample standard deviation" in axes.get_title()
    assert (axes.get_xticks() == axes.get_xticks().round()).all()  # rounds are whole numbers
    assert "all" in figure.as_svg("a")  # and no formula of it


COSTS = (
    "round,accuracy,bytes-sent,bytes-received,simulated-seconds\n"
    "1,0.25,2000000,1000000,1.5\n2,,1000000,500000,4\n3,0.75,2000000,1000000,7.5\n"
)


def test_a_curve_by_what_it_cost(tmp_path):
    """A round without a metric has cost something too; megabytes are shown where some were saved."""
    plain, small = (
        Run.read(write_run(tmp_path / name, summary_of([0.75]), COSTS, compress=name))
        for name in ("none", "sign")
    )
    assert plain.shown_costs == ["simulated seconds"]
    assert small.shown_costs == ["simulated seconds", "MB sent and received"]
    for cost, at in {"simulated seconds": [1.5, 7.5], "MB sent and received": [3.0, 7.5]}.items():
        (axes,) = metric_curve(small, "accuracy", cost).axes
        assert axes.lines[0].get_xdata().tolist() == at
        assert axes.get_xlabel() == cost
    captions = page(small.folder).text["figcaption"]
    assert {"Accuracy by simulated seconds", "Accuracy by MB sent and received"} < set(captions)


def test_a_sweeps_curves_by_what_they_cost(tmp_path):
    """Of two seeds each round is at the mean of what they had cost; all cells are in the figure."""
    sweep = write_sweep(tmp_path / "sweep")
    for number, folder in enumerate(sorted(path for path in sweep.iterdir() if path.is_dir())):
        seconds = "simulated-seconds\n", f"{number}\n", f"{number + 1}\n", f"{number + 3}\n"
        lines = (folder / "metrics.csv").read_text().splitlines()
        text = "".join(f"{line},{more}" for line, more in zip(lines, seconds, strict=True))
        (folder / "metrics.csv").write_text(text)
    groups = Sweep.read(sweep).groups
    (axes,) = curves_figure(groups, "accuracy", cost="simulated seconds").axes
    found = {line.get_label(): line.get_xdata().tolist() for line in axes.lines}
    assert found["fedavg fedbn"] == [0.5, 3.5]
    assert len(found) == 4
    assert "Accuracy by simulated seconds" in page(sweep).text["figcaption"]


def test_one_round_is_a_point(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "clients.csv").write_text(
        "round,phase,partition,num-examples,loss,accuracy\n1,evaluate,0,5,1.0,0.5\n"
    )
    (axes,) = [axes for axes in client_curves(Run.read(folder)).axes if axes.get_visible()]
    assert [line.get_marker() for line in axes.lines] == ["o", "o"]


def test_a_line_that_lies_on_another_says_so_and_the_lower_one_is_broader():
    same, other = [{1: 0.5, 2: 0.7}], [{1: 0.4, 2: 0.6}]
    (axes,) = mean_curves({"a": same, "b": other, "c": same}, "accuracy").axes
    widths = [line.get_linewidth() for line in axes.lines]
    assert widths[0] > widths[1] == widths[2]
    assert [line.get_label() for line in axes.lines] == ["a", "b", "c\nlies on a"]
    assert axes.get_ylabel() == "accuracy, %"


def test_clients_are_small_multiples_and_many_a_heat_map(tmp_path):
    few = client_curves(Run.read(write_run(tmp_path / "few", client_names=["Ann", "Bob"])))
    shown = [axes for axes in few.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == ["Ann", "Bob"]
    np.testing.assert_allclose(shown[1].lines[-1].get_xydata(), [[1, 30], [3, 80]])

    rows = "".join(
        f"{r},evaluate,{i},5,1.0,{i / 100 + r}\n" for r in (1, 2) for i in range(13) if (r, i) != (1, 4)
    )
    header = "round,phase,partition,num-examples,loss,accuracy\n"
    many = client_curves(Run.read(write_run(tmp_path / "many", clients=header + rows)))
    table = many.axes[0].images[0].get_array()
    assert table.shape == (13, 2)
    assert table.mask.nonzero() == (4, 0)
    np.testing.assert_allclose(table[:, 1], np.arange(13) + 200)
    assert client_curves(Run.read(write_run(tmp_path / "none", clients=header))) is None


def test_a_million_clients_are_drawn_as_means_of_neighbours():
    counts = np.arange(8002)[:, None] * np.array([[1, 0]])
    [image] = class_counts(counts, ["a", "b"], "iid").axes[0].images
    drawn = image.get_array()
    assert drawn.shape == (2, 1601)  # five together, and the last two
    assert drawn[0, [0, 1, -1]].tolist() == [2, 7, 8000.5]
    assert not drawn[1].any()
    assert tuple(image.get_extent()) == (-0.5, 8001.5, 1.5, -0.5)


def test_class_counts_are_bars_with_names_and_beyond_thirty_clients_a_heat_map(tmp_path):
    bars = class_counts(np.array([[3, 1], [0, 2]]), ["cat", "$d$"], "iid")
    heights = [[patch.get_height() for patch in container] for container in bars.axes[0].containers]
    assert heights == [[3, 0], [1, 2]]
    assert [patch.get_y() for patch in bars.axes[0].containers[1]] == [3, 0]
    assert [text.get_text() for text in bars.legends[0].get_texts()] == [r"\$d\$", "cat"]

    counts = np.arange(62).reshape(31, 2)
    heat = class_counts(counts, ["cat", "dog"], "iid")
    np.testing.assert_array_equal(heat.axes[0].images[0].get_array(), counts.T)
    assert [label.get_text() for label in heat.axes[0].get_yticklabels()] == ["cat", "dog"]

    run = write_run(tmp_path / "run")
    (run / "partitions.csv").write_text("partition,class,examples\n0,cat,3\n0,dog,1\n1,cat,0\n1,dog,2\n")
    drawn = partition_counts(Run.read(run)).axes[0].containers
    assert [[patch.get_height() for patch in container] for container in drawn] == [[3, 0], [1, 2]]


def test_a_sweeps_lines_are_its_cells(tmp_path):
    (axes,) = sweep_figure(write_sweep(tmp_path / "sweep")).axes
    ends = {line.get_label(): line.get_xydata()[-1].tolist() for line in axes.lines}
    assert ends == {
        "fedavg silobn": pytest.approx([3, 55]),
        "fedavg fedbn": pytest.approx([3, 75]),
        "fedyogi silobn": pytest.approx([3, 90]),
        "fedyogi fedbn": pytest.approx([3, 40]),
    }
    assert axes.get_title().startswith("plain on digits, silos:0-4,5-9, 2 clients\n")


def test_a_sweeps_title_says_only_what_all_its_runs_share(tmp_path):
    folder = write_sweep(tmp_path / "sweep")
    for other, title in (
        ({"partition": "iid"}, "plain on digits, 2 clients\n"),
        ({"num-clients": 3}, "plain on digits\n"),
        ({"dataset": "iris"}, "plain\n"),
    ):
        change_run(folder / "fedyogi-fedbn-plain-seed0", other)
        assert sweep_figure(folder).axes[0].get_title().startswith(title)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("length", [75, 4])
def test_a_legend_stays_inside_its_picture(length):
    name = "partition=dirichlet:0.3 local-epochs=20 batch-size=10 server-lr=0.015 model=resnet20"
    figure = mean_curves({f"{line}{name}"[:length]: [{1: 0.5, 2: 0.6}] for line in range(3)}, "accuracy")
    figure.as_png()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_two_pictures_of_one_page_have_no_id_in_common():
    import xml.etree.ElementTree as ElementTree

    ids, used = [], []
    for name in ("first", "second"):
        figure = new_figure(3, 2)
        figure.subplots().plot([1, 2], marker="o")
        root = ElementTree.parse(io.StringIO(figure.as_svg(name))).getroot()
        own = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
        used.append({v[1:] for e in root.iter() for k, v in e.attrib.items() if k.endswith("href")})
        assert used[-1] <= own
        assert used[-1]
        ids.append(own)
    assert not ids[0] & ids[1]


def test_few_clients_and_classes_stand_by_their_names_which_lose_their_middle():
    names = ["St. Mary's Hospital of the Sisters of Mercy", "Lyon"]
    classes = [f"carcinoma of the {side} upper lobe, third stage" for side in ("left", "right")]
    figure = class_counts(np.ones((2, 2), int), classes, "iid", names)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(set(legend)) == 2
    assert max(map(len, legend)) < 30
    shown = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert shown[1] == "Lyon"
    assert len(shown[0]) == 14
    many = class_counts(np.ones((9, 2), int), ["a", "b"], "iid", [f"site {i}" for i in range(9)]).axes[0]
    assert [label.get_text() for label in many.get_xticklabels()] == [str(i) for i in range(9)]


@pytest.mark.slow
def test_a_picture_is_what_matplotlib_saves(tmp_path):
    """As bytes: finding the layout alone before saving changes nothing, and drawing elsewhere is as usual."""
    run = write_run(tmp_path / "run")
    plain, ours = io.BytesIO(), curves(Run.read(run))
    curves(Run.read(run)).savefig(plain, format="png", dpi=120)
    assert ours.as_png() == plain.getvalue() == ours.as_png()
    canvas = FigureCanvasAgg(curves(Run.read(run)))
    canvas.draw()
    assert len(np.unique(canvas.buffer_rgba())) > 10


def test_a_method_whose_runs_all_failed_has_no_line_by_site():
    (axes,) = by_site_plot({"failed": {}, "fedbn": {"lyon": [0.5], "turin": [0.7, 0.9]}}, "accuracy").axes
    assert axes.get_legend_handles_labels()[1] == ["fedbn"]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"] == [pytest.approx(65)]

"""The report's figures of what was predicted, of all clients and of each."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc

from clients.problems.metrics.scores import SensitivityAt, curve, thresholds
from fedbn_flower import simulate
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study import figures
from fedbn_flower.study.predictions import curves_by_site, predictions
from fedbn_flower.study.statistics.intervals import delong


@pytest.fixture(scope="module")
def run(cache_dir, tmp_path_factory, pictures_never_drawn, draws_always_few):
    """Two sites with a rare outcome; there is no report yet."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4)).astype(np.float32)
    y = (rng.random(600) < 1 / (1 + np.exp(2 - 2 * x[:, 0]))).astype(np.int64)
    keys = {"num_clients": 2, "partition": "iid", "client": "shared", "strategy": "fedavg", "rounds": 2}
    keys |= {"metrics": ["sensitivity-at:0.9", "f1", "ece"], "eval_data": "local", "backend": "inline"}
    keys |= {"run_dir": tmp_path_factory.mktemp("rare") / "run", "cache_dir": cache_dir, "progress": False}
    return simulate(data=(x[:300], y[:300], x[300:], y[300:]), **keys)


@pytest.mark.slow
@pytest.mark.usefixtures("drawn_figures")
def test_every_figure_is_there_once_and_by_client_at_a_click(run):
    page = run_page(Run.read(run.folder))
    found = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    for caption in ("ROC curve", "Precision and recall"):  # of all sites on the same axes
        assert [figure for figure in found if figure.startswith(caption)] == [caption]
    matrices = ["Confusion matrix", "Confusion matrix, client 0", "Confusion matrix, client 1"]
    assert [figure for figure in found if figure.startswith(matrices[0])] == matrices
    folded = page.partition(f"<summary>{matrices[0]} of each client</summary>")[2].partition("</details>")[0]
    assert folded.count("<svg") == 2
    assert "fixed thresholds" not in page
    assert "Reliability diagram" not in found  # the calibration of cases is drawn with their decisions
    assert len(set(re.findall(r'\bid="([^"]*)"', page))) == len(re.findall(r'\bid="([^"]*)"', page))


def test_the_operating_point_is_that_of_all_clients_cases(run, tmp_path):
    """The highest sensitivity at a specificity of 0.9, and what its threshold does at each site."""
    (tmp_path / "config.json").write_text((run.folder / "config.json").read_text())
    assert list(predictions(Run.read(tmp_path))) == []  # without states
    page, cases = run_page(Run.read(run.folder)), run.predictions
    rates, found, scores = sklearn_roc(cases.target, cases.score, drop_intermediate=False)
    point = np.flatnonzero(1 - rates >= 0.9 - 1e-12)[-1]
    assert run.summary["pooled"]["sensitivity-at:0.9"] == pytest.approx(found[point], abs=1e-12)
    assert f"From a probability of {scores[point]:.4g} on, class 1 is predicted" in page
    sites = {f"client {site}": of for site, of in cases.groupby("site")}
    for label, of in {"pooled": cases, **sites}.items():
        row = next(line for line in page.splitlines() if f"{label}</td>" in line and line.count("<td") == 3)
        said = [float(text) for text in re.findall(r'class="number">([\d.]+)<', row)]
        above = of.score >= scores[point]
        assert said == pytest.approx(
            [above[of.target == 1].mean(), 1 - above[of.target == 0].mean()], abs=5e-4
        )


def test_the_line_of_the_roc_curve_goes_through_scikit_learns_points():
    grid = thresholds(50).numpy()
    rng = np.random.default_rng(0)
    bins, y = rng.integers(1, 51, 200), rng.integers(0, 2, 200)
    histogram = np.zeros((1, 2, 51), np.int64)
    np.add.at(histogram, (0, y, bins), 1)
    (axes,) = figures.roc_curve(histogram, ["no", "yes"]).axes
    diagonal, line = axes.lines
    assert diagonal.get_xydata().tolist() == [[0, 0], [1, 1]]
    fpr, tpr, _ = sklearn_roc(y, grid[bins - 1], drop_intermediate=False)
    assert line.get_label() == "yes"
    np.testing.assert_allclose(line.get_xdata(), fpr)
    np.testing.assert_allclose(line.get_ydata(), tpr)


def test_the_threshold_of_a_point_is_the_lowest_that_is_allowed():
    """Two negatives in the bins above the thresholds 10 and 20, a positive above 15."""
    histogram = np.zeros((2, 51), np.int64)
    histogram[0, [11, 21]] = 1
    histogram[1, 16] = 1
    found = curve(histogram)
    metric = SensitivityAt.__new__(SensitivityAt)
    metric.specificity = 0.5
    point = metric.point(found)
    assert found.threshold[point] == pytest.approx(thresholds(50)[11].item())
    assert (found.tp[point], found.fp[point]) == (1, 1)


def test_a_matrix_of_labels_has_a_row_a_label():
    total = np.arange(12).reshape(3, 2, 2)
    axes = figures.confusion_matrix(total, ["a", "b", "c"]).axes[0]
    assert [text.get_text() for text in axes.texts] == [str(i) for i in range(12)]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["TN", "FP", "FN", "TP"]


def three_sites(seed=0):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 2, 90)
    score = 1 / (1 + np.exp(-rng.normal(target)))
    return pd.DataFrame(
        {"site": np.repeat(["Lyon", "Turin", "$ite"], 30), "id": range(90), "target": target, "score": score}
    )


def curves_of(table):
    """Of a run with these cases."""
    return curves_by_site(SimpleNamespace(binary_cases=table))


def test_all_sites_have_their_curves_on_the_same_axes():
    """With areas by scikit-learn, DeLong's intervals, and steps of precision above the prevalence."""
    table = three_sites()
    found = curves_of(table)
    (roc,), (precision,) = found["ROC curve"].axes, found["Precision and recall"].axes
    texts = [text.get_text() for text in roc.figure.legends[0].get_texts()]
    assert [text.partition(":")[0] for text in texts] == ["Lyon", "Turin", r"\$ite", "all sites pooled"]
    for text, (_, of) in zip(texts, [*table.groupby("site", sort=False), ("", table)], strict=True):
        ends = delong(of["target"], of["score"])
        area = roc_auc_score(of["target"], of["score"])
        assert text.endswith(f": AUROC {area:.3f} ({ends.low:.3f} to {ends.high:.3f})")
    lines = [line for line in precision.lines if line.get_linestyle() != ":"]
    for line, (_, of) in zip(lines, table.groupby("site", sort=False), strict=False):
        assert line.get_drawstyle() == "steps-pre"
        x, y = line.get_data()
        assert x[0] == 0
        area = float(np.sum(np.diff(x) * y[1:]))  # a step has the precision of the point to its right
        assert area == pytest.approx(average_precision_score(of["target"], of["score"]))
    levels = [line.get_ydata()[0] for line in precision.lines if line.get_linestyle() == ":"]
    assert levels == pytest.approx(
        [*table.groupby("site", sort=False)["target"].mean(), table["target"].mean()]
    )


def test_sites_of_one_class_have_no_curve_and_shared_cases_are_not_pooled():
    table = three_sites()
    table.loc[table["site"] == "Turin", "target"] = 0
    texts = [t.get_text() for t in curves_of(table)["ROC curve"].legends[0].get_texts()]
    assert [text.partition(":")[0] for text in texts] == ["Lyon", r"\$ite", "all sites pooled"]
    shared = three_sites().assign(id=[*range(30)] * 3)
    texts = [t.get_text() for t in curves_of(shared)["ROC curve"].legends[0].get_texts()]
    assert len(texts) == 3
    assert curves_of(None) == curves_of(three_sites().assign(target=0)) == {}
    many = three_sites().assign(site=[str(i % 11) for i in range(90)])
    assert curves_of(many) == {}


def histogram(negative, positive, bins=11):
    return np.array([[np.bincount(negative, minlength=bins), np.bincount(positive, minlength=bins)]])


def test_precision_by_thresholds_is_drawn_as_steps_with_the_prevalence():
    total = histogram([0, 0, 3, 5, 9, 2], [9, 8])
    axes = figures.precision_recall_curve(total, ["no", "yes"]).axes[0]
    steps, level = axes.lines
    assert steps.get_drawstyle() == "steps-pre"
    assert level.get_ydata()[0] == 2 / 8
    x, y = steps.get_data()
    scores, truth = [0, 0, 3, 5, 9, 2, 9, 8], [0] * 6 + [1] * 2
    area = float(np.sum(np.diff(x) * y[1:]))
    assert area == pytest.approx(average_precision_score(truth, scores))


def test_a_bin_of_one_example_has_no_point():
    total = np.array([[5.0, 1, 2], [1, 1, 1], [0.5, 0.4, 1.6]])
    points = figures.reliability_diagram(total, ["a", "b"]).axes[0].lines[1].get_data()
    assert np.asarray(points).T.tolist() == [[0.1, 0.2], [0.8, 0.5]]

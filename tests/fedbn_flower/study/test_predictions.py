"""The report's figures of what was predicted, of all clients and of each."""

import re

import numpy as np
import pytest
from sklearn.metrics import roc_curve as sklearn_roc

from clients.problems.metrics.scores import SensitivityAt, curve, thresholds
from fedbn_flower import simulate
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study import metric_plots
from fedbn_flower.study.sections.predictions import predictions

CAPTIONS = ["Confusion matrix", "ROC curve", "Precision and recall", "Reliability diagram"]


pytestmark = pytest.mark.usefixtures("drawn_figures")


@pytest.fixture(scope="module")
def run(cache_dir, tmp_path_factory):
    """Two sites with a rare outcome."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4)).astype(np.float32)
    y = (rng.random(600) < 1 / (1 + np.exp(2 - 2 * x[:, 0]))).astype(np.int64)
    return simulate(
        data=(x[:300], y[:300], x[300:], y[300:]),
        num_clients=2,
        partition="iid",
        client="shared",
        strategy="fedavg",
        metrics=["sensitivity-at:0.9", "f1", "ece"],
        eval_data="local",
        rounds=2,
        run_dir=tmp_path_factory.mktemp("rare") / "run",
        cache_dir=cache_dir,
        backend="inline",
        progress=False,
    )


@pytest.mark.slow
def test_every_figure_is_there_once_and_by_client_at_a_click(run):
    page = (run.folder / "report.html").read_text()
    found = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    for caption in CAPTIONS:
        assert found.count(caption) == 1
        if caption in ("ROC curve", "Precision and recall"):  # of all sites on the same axes
            assert not any(f.startswith(f"{caption}, ") for f in found)
            continue
        assert [f"{caption}, client {i}" for i in (0, 1)] == [
            f for f in found if f.startswith(f"{caption}, ")
        ]
        folded = page.partition(f"<summary>{caption} of each client</summary>")[2].partition("</details>")[0]
        assert folded.count("<svg") == 2
    assert "fixed thresholds" not in page
    assert len(set(re.findall(r'\bid="([^"]*)"', page))) == len(re.findall(r'\bid="([^"]*)"', page))


def test_the_operating_point_is_that_of_all_clients_cases(run):
    """The highest sensitivity at a specificity of 0.9, and what its threshold does at each site."""
    page, cases = (run.folder / "report.html").read_text(), run.predictions
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


def test_a_run_without_states_has_no_figures(run, tmp_path):
    (tmp_path / "config.json").write_text((run.folder / "config.json").read_text())
    assert list(predictions(Run.read(tmp_path))) == []


def test_the_line_of_the_roc_curve_goes_through_scikit_learns_points():
    grid = thresholds(50).numpy()
    rng = np.random.default_rng(0)
    bins, y = rng.integers(1, 51, 200), rng.integers(0, 2, 200)
    histogram = np.zeros((1, 2, 51), np.int64)
    np.add.at(histogram, (0, y, bins), 1)
    (axes,) = metric_plots.roc_curve(histogram, ["no", "yes"]).axes
    line = axes.lines[0]
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
    axes = metric_plots.confusion_matrix(total, ["a", "b", "c"]).axes[0]
    assert [text.get_text() for text in axes.texts] == [str(i) for i in range(12)]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["TN", "FP", "FN", "TP"]

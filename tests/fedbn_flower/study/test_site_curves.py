"""Curves of sites, and what is drawn of predictions."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from fedbn_flower.study import metric_plots
from fedbn_flower.study.sections.site_curves import curves_by_site
from fedbn_flower.study.statistics.intervals import delong

from ..results.html_page import page
from ..results.test_cases import BINARY, LOCALLY


def cases(seed=0):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 2, 90)
    score = 1 / (1 + np.exp(-rng.normal(target)))
    return pd.DataFrame(
        {"site": np.repeat(["Lyon", "Turin", "$ite"], 30), "id": range(90), "target": target, "score": score}
    )


class Kept:
    """A run with these cases."""

    def __init__(self, table):
        self.binary_cases = table


def test_all_sites_have_their_curves_on_the_same_axes():
    """With areas by scikit-learn, DeLong's intervals, and steps of precision above the prevalence."""
    table = cases()
    found = curves_by_site(Kept(table))
    (roc,), (precision,) = found["ROC curve"].axes, found["Precision and recall"].axes
    texts = [text.get_text() for text in roc.figure.legends[0].get_texts()]
    assert [text.partition(":")[0] for text in texts] == ["Lyon", "Turin", r"\$ite", "all sites pooled"]
    for text, (_, of) in zip(texts, [*table.groupby("site", sort=False), ("", table)], strict=True):
        ends = delong(of["target"], of["score"])
        area = roc_auc_score(of["target"], of["score"])
        assert text.endswith(f": AUROC {area:.3f} ({ends.low:.3f} to {ends.high:.3f})")
    lines = [line for line in precision.lines if line.get_linestyle() != ":"]
    for line, (_, of) in zip(lines, table.groupby("site", sort=False), strict=False):
        assert line.get_drawstyle() == "steps-post"
        x, y = line.get_data()  # recall falls: a step keeps the precision of the point to its right
        area = float(np.sum(-np.diff(x) * y[:-1]))
        assert area == pytest.approx(average_precision_score(of["target"], of["score"]))
    levels = [line.get_ydata()[0] for line in precision.lines if line.get_linestyle() == ":"]
    assert levels == pytest.approx(
        [*table.groupby("site", sort=False)["target"].mean(), table["target"].mean()]
    )


def test_sites_of_one_class_have_no_curve_and_shared_cases_are_not_pooled():
    table = cases()
    table.loc[table["site"] == "Turin", "target"] = 0
    texts = [t.get_text() for t in curves_by_site(Kept(table))["ROC curve"].legends[0].get_texts()]
    assert [text.partition(":")[0] for text in texts] == ["Lyon", r"\$ite", "all sites pooled"]
    shared = cases().assign(id=[*range(30)] * 3)
    texts = [t.get_text() for t in curves_by_site(Kept(shared))["ROC curve"].legends[0].get_texts()]
    assert len(texts) == 3
    assert curves_by_site(Kept(None)) == curves_by_site(Kept(cases().assign(target=0))) == {}
    many = cases().assign(site=[str(i % 11) for i in range(90)])
    assert curves_by_site(Kept(many)) == {}


def test_they_stand_in_the_report_in_the_place_of_those_by_thresholds(run):
    result = run(**BINARY, **LOCALLY, metrics="auroc,ece", client="fedbn")
    captions = page(result.folder).text["figcaption"]
    assert captions.count("ROC curve") == 1
    assert "Reliability diagram" in captions
    assert "ROC curve, client 0" not in captions


def histogram(negative, positive, bins=11):
    return np.array([[np.bincount(negative, minlength=bins), np.bincount(positive, minlength=bins)]])


def test_precision_by_thresholds_is_drawn_as_steps_with_the_prevalence():
    total = histogram([0, 0, 3, 5, 9, 2], [9, 8])
    axes = metric_plots.precision_recall_curve(total, ["no", "yes"]).axes[0]
    steps, level = axes.lines
    assert steps.get_drawstyle() == "steps-pre"
    assert level.get_ydata()[0] == 2 / 8
    x, y = steps.get_data()
    scores, truth = [0, 0, 3, 5, 9, 2, 9, 8], [0] * 6 + [1] * 2
    area = float(np.nansum(np.diff(x) * y[1:])) + x[0] * y[0]
    assert area == pytest.approx(average_precision_score(truth, scores))


def test_a_bin_of_one_example_has_no_point():
    total = np.array([[5.0, 1, 2], [1, 1, 1], [0.5, 0.4, 1.6]])
    points = metric_plots.reliability_diagram(total, ["a", "b"]).axes[0].lines[1].get_data()
    assert np.asarray(points).T.tolist() == [[0.1, 0.2], [0.8, 0.5]]

"""Intervals in summary.json and in the report: SciPy's for shares, the run's own values within them."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from fedbn_flower.clients.problems.classification import Classification
from fedbn_flower.records.cases import predictions_of
from fedbn_flower.results.report.sections.intervals import Intervals, _figure, with_interval
from fedbn_flower.results.run_reader import Run
from fedbn_flower.study import intervals as module
from fedbn_flower.study.intervals import intervals_of, of_rare_event
from fedbn_flower.study.statistics.intervals import delong

from ..results.html_page import page
from ..results.test_cases import BINARY, LOCALLY, PRIVATE, TEN, X, Y, of_sites

OF_CLASS_ONE = ["auroc", "sensitivity", "specificity"]
FURTHER = [*OF_CLASS_ONE, "f1", "balanced-accuracy", "average-precision", "ece", "sensitivity-at:0.8"]


@pytest.fixture(scope="module")
def draws_always_few():
    """All draws of a run."""


def each(summary):
    """Group, metric, value and interval of everything that has an interval."""
    found = summary["intervals"]
    own = {name: value for name, value in summary["mean"].items() if name in ("accuracy", "loss", "mae")}
    for name, ends in found["pooled"].items():
        yield "pooled", name, (summary["pooled"] or own)[name], ends
    for name, ends in found["mean"].items():
        yield "mean", name, summary["client-mean"][name], ends
    clients = {client.get("name", i): client for i, client in summary["clients"].items()}
    for site, of_site in found["clients"].items():
        for name, ends in of_site.items():
            yield site, name, clients[site][name], ends


def test_an_accuracys_are_the_exact_ones_of_scipy_by_the_names_of_the_sites(run, tmp_path):
    result = run(**of_sites(tmp_path / "data"))
    found, cases = result.summary["intervals"], predictions_of(result.folder)
    assert list(found["clients"]) == list(cases.site.unique())
    assert set(found["clients"]) == {"lyon", "turin"}
    for of, part in [(found["pooled"], cases), *((found["clients"][s], c) for s, c in cases.groupby("site"))]:
        right = int(((part.score > 0.5) == part.target).sum())
        ends = binomtest(right, len(part)).proportion_ci(0.95, "exact")
        assert of["accuracy"] == pytest.approx([ends.low, ends.high], rel=1e-9)
    shown = page(result.folder)
    rows = {row[0]: row for row in reversed(shown.rows)}
    n, ill = len(cases), int(cases.target.sum())
    counts = ["training examples", "held-out cases", "events (yes)"]
    assert rows["model"] == ["model", *counts, "accuracy", "loss"]
    low, high = found["pooled"]["accuracy"]
    text = f"{100 * result.summary['mean']['accuracy']:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
    assert [rows["mean over examples"][i] for i in (2, 3, 4)] == [str(n), str(ill), text]
    lyon = cases[cases.site == "lyon"]
    assert rows["client lyon"][2:4] == [str(len(lyon)), str(lyon.target.sum())]
    assert " to " in rows["mean over clients"][4]
    assert "Accuracy by site" in shown.text["figcaption"]
    assert sum(text.startswith("In brackets: 95 % intervals") for text in shown.text["p"]) == 1
    read = Run.read(result.folder)
    labels = [text.get_text() for text in _figure(read, Intervals.of(read)).axes[0].get_yticklabels()]
    of_all = f"all sites pooled (yes: {ill} of {n})"
    assert {f"lyon (yes: {lyon.target.sum()} of {len(lyon)})", of_all} < {*labels}


@pytest.mark.slow
def test_each_metric_of_two_classes_has_intervals_around_the_runs_own_values(run):
    result = run(**BINARY, **LOCALLY, client="shared", metrics=FURTHER)
    found = list(each(result.summary))
    named = {"loss", "accuracy", *FURTHER} - {"ece"}  # which has a test in its place
    assert {(group, name) for group, name, *_ in found} == {
        (group, name) for group in ("pooled", "mean", "0", "1") for name in named
    }
    assert all(low <= value <= high for *_, value, (low, high) in found)
    cases = result.predictions
    expected = delong(cases.target == 1, cases.score)
    assert result.summary["pooled"]["auroc"] == pytest.approx(expected.value)
    assert result.summary["intervals"]["pooled"]["auroc"] == pytest.approx([expected.low, expected.high])


@pytest.mark.slow
def test_so_have_those_of_several_classes_and_of_numbers(run):
    numbers = BINARY | {"data": (X[:200], X[:200, :1], X[200:], X[200:, :1])}
    for keys, further in ((TEN, ["accuracy", "f1", "sensitivity"]), (numbers, ["mae", "rmse", "r2"])):
        result = run(**keys, **LOCALLY, client="shared", metrics=further)
        found = list(each(result.summary))
        assert {name for _, name, *_ in found} == {"loss", *further}
        assert all(low is None or low <= value <= high for *_, value, (low, high) in found)


@pytest.mark.slow
def test_clients_with_the_same_cases_have_none_together(run):
    result = run(**TEN, eval_data="global", client="shared")
    found = result.summary["intervals"]
    assert (found["pooled"], found["mean"]) == ({}, {})
    assert found["note"] == "All clients have the same cases, so only each client by itself has intervals."
    assert list(found["clients"]) == ["0", "1", "2"]
    assert all(low <= value <= high for *_, value, (low, high) in each(result.summary))
    shown = page(result.folder)
    assert found["note"] in shown.text["p"]
    rows = {row[0]: row for row in reversed(shown.rows)}
    assert rows["mean over examples"][1:3] == ["", ""]  # they are no 1200 cases
    assert rows["client 0"][2] == "400"


@pytest.mark.slow
def test_without_predictions_there_are_none(run):
    """Nor of several labels."""
    targets = np.stack([Y, 1 - Y, Y], 1).astype(np.float32)
    labels = {"data": (X[:200], targets[:200], X[200:], targets[200:]), "problem": "multi-label"}
    for keys in ({"predictions": "off"}, {"strategy": "fedavg", **PRIVATE}, labels):
        result = run(**BINARY | LOCALLY | keys)
        assert "intervals" not in result.summary
        assert not any("95 % intervals" in text for text in page(result.folder).text["p"])


# ---- a table by hand ---------------------------------------------------------------------------------------

CASES = pd.DataFrame(
    {
        "site": ["a", "a", "a", "a", "b"],
        "id": range(5),
        "group": None,
        "target": [0, 1, 1, 1, 0],
        "score": [0.25, 0.75, 0.5 - 2**-20, 0.75, 0.5 - 2**-20],
    }
)
LOSS_A = -np.log([0.75, 0.75, 0.5 - 2**-20, 0.75])
LOSS_B = -np.log(0.5 + 2**-20)
SUMMARY = {
    "mean": {"accuracy": 0.8, "loss": (LOSS_A.sum() + LOSS_B) / 5},
    "pooled": None,
    "clients": {
        "0": {"name": "a", "accuracy": 0.75, "loss": LOSS_A.mean()},
        "1": {"name": "b", "accuracy": 1.0, "loss": LOSS_B},
    },
}


def test_a_single_case_has_a_share_and_no_bounds_of_a_loss():
    found = intervals_of(CASES, SUMMARY, Classification(), 0)
    assert found["clients"]["b"]["loss"] == [None, None]
    ends = binomtest(1, 1).proportion_ci(0.95, "exact")
    assert found["clients"]["b"]["accuracy"] == pytest.approx([ends.low, ends.high])
    assert found["note"] == (
        "Too few events for an interval (it takes 5 of each class): loss; "
        "all sites pooled, mean over sites, a, b."
    )


@pytest.mark.parametrize("where", ["mean", "clients"])
def test_a_metric_of_another_value_than_the_runs_has_none(where):
    summary = json.loads(json.dumps(SUMMARY))
    (summary["mean"] if where == "mean" else summary["clients"]["0"])["loss"] += 0.001
    found = intervals_of(CASES, summary, Classification(), 0)
    assert found["pooled"].keys() == found["clients"]["a"].keys() == {"accuracy"}


def test_a_rare_event_has_those_of_auroc_and_sensitivity_and_the_others_stay_as_they_are():
    rng = np.random.default_rng(0)
    target = np.tile(np.arange(60) < 8, 2).astype(int)
    score = 0.6 * rng.random(120) + 0.3 * target
    table = pd.DataFrame({"site": ["a"] * 60 + ["b"] * 60, "id": range(120), "target": target})
    table = table.assign(score=score, group=None)
    right = (score > 0.5) == target
    sites = {str(i): {"name": "ab"[i], "accuracy": right[60 * i :][:60].mean()} for i in range(2)}
    summary = {"mean": {"accuracy": right.mean()}, "pooled": None, "clients": sites}
    found = intervals_of(table, summary, Classification(), 0, of_rare_event(table, summary))
    assert found["pooled"]["auroc"] == pytest.approx(list(delong(target, score)[1:3]))
    threshold = np.sort(score[8:60])[-6]  # a tenth of these 52 may lie above
    low, high = found["clients"]["a"]["sensitivity-at:0.9"]
    assert low < (score[:8] > threshold).mean() < high
    others = intervals_of(table, summary, Classification(), 0)
    assert others["pooled"].keys() == {"accuracy"}
    assert all(found[of]["accuracy"] == others[of]["accuracy"] for of in ("pooled", "mean"))
    assert of_rare_event(table, {"pooled": {"auroc": 0.9}}).keys() == {"sensitivity-at:0.9"}
    assert of_rare_event(table.assign(target=1 - target), summary) == {}
    assert of_rare_event(table.assign(id=0), summary) == {}


def test_targets_are_numbers_of_classes_however_these_are_called():
    """Classes called 2, 1 and 0: the target 0 is of the first one."""
    scores = np.eye(3)[[0, 1, 2, 0]] * 0.9 + 0.1 / 3
    table = pd.DataFrame(scores, columns=["score-2", "score-1", "score-0"])
    table = table.assign(site="a", id=range(4), group=None, target=[0, 1, 2, 1])
    of_all = {"accuracy": 0.75, "loss": -np.log([*[0.9 + 0.1 / 3] * 3, 0.1 / 3]).mean()}
    summary = {"mean": of_all, "pooled": None, "clients": {"0": of_all | {"name": "a"}}}
    assert intervals_of(table, summary, Classification(), 0)["pooled"].keys() == {"accuracy", "loss"}


def test_what_takes_too_long_is_left_out_and_said_the_headline_last(monkeypatch):
    monkeypatch.setattr(module, "MOST", 150)  # 2 x 5 cases, 2 x 50 for the clients
    found = intervals_of(CASES, SUMMARY, Classification(), 0)
    assert found["pooled"].keys() == {"accuracy"}
    assert found["note"] == "No intervals of loss: with 5 cases they take too long."
    monkeypatch.setattr(module, "MOST", 109)
    none = {"pooled": {}, "mean": {}, "clients": {"a": {}, "b": {}}}
    note = "No intervals of accuracy, loss: with 5 cases they take too long."
    assert intervals_of(CASES, SUMMARY, Classification(), 0) == none | {"note": note}


def test_a_value_stands_before_its_interval():
    assert with_interval("auroc", "0.91", [0.871234, 0.94]) == "0.91 (0.8712 to 0.94)"
    assert with_interval("accuracy", "91.0 %", [0.87, 0.94]) == "91.0 % (87.0 to 94.0)"
    assert with_interval("auroc", "0.91", [None, None]) == with_interval("auroc", "0.91", None) == "0.91"
    assert with_interval("auroc", "", [0.1, 0.2]) == ""

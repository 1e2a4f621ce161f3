"""Metrics of scores are those of single cases wherever these are known: one number for one thing."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from fedbn_flower import simulate
from fedbn_flower.clients import Predicted
from fedbn_flower.clients.problems.metrics import METRICS
from fedbn_flower.records.metrics import shown
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run

from ..results.written import csv_rows

NAMES = "auroc,average-precision,sensitivity-at:0.8"


def sensitivity_at(truth: np.ndarray, scores: np.ndarray, specificity: float) -> float:
    rates, found, _ = roc_curve(truth, scores, drop_intermediate=False)
    return float(found[1 - rates >= specificity - 1e-12].max())


def expected(truth: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    return {
        "auroc": roc_auc_score(truth, scores),
        "average-precision": average_precision_score(truth, scores),
        "sensitivity-at:0.8": sensitivity_at(truth, scores, 0.8),
    }


@pytest.mark.parametrize("seed", range(2))
def test_exact_metrics_are_scikit_learns_with_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, 40)
    scores = np.round(rng.random(40), 1 if seed % 2 else 6)
    both = np.stack([1 - scores, scores], axis=1)
    for name, value in expected(truth, scores).items():
        head, _, argument = name.partition(":")
        metric: Any = METRICS[head](Predicted("classes", 2), argument)
        np.testing.assert_allclose(metric.exact(both, truth), [value], atol=1e-12)


@pytest.mark.filterwarnings("error")
def test_of_several_classes_each_is_one_against_the_rest() -> None:
    rng = np.random.default_rng(0)
    truth, scores = rng.integers(0, 3, 60), rng.dirichlet(np.ones(3), 60)
    metric: Any = METRICS["auroc"](Predicted("classes", 3))
    each = [roc_auc_score(truth == c, scores[:, c]) for c in range(3)]
    truth.flags.writeable = scores.flags.writeable = False  # as a table's columns may be
    torch.set_warn_always(True)
    try:
        np.testing.assert_allclose(metric.exact(scores, truth), each, atol=1e-12)
    finally:
        torch.set_warn_always(False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, pictures_never_drawn: None) -> Run:
    """Scores that lie close together: thresholds between all of them are few."""
    pytest.importorskip("fedbn_flower.study")
    folder = tmp_path_factory.mktemp("exact")
    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 1))
    y = (rng.random(300) < 0.3 * np.exp(x[:, 0] / 2) / 1.2).astype(int)
    frame = pd.DataFrame({"site": np.repeat(["a", "b", "c"], 100), "x": x[:, 0], "y": y})
    frame.to_csv(folder / "data.csv", index=False)
    trained(folder, "run", rounds=1, client_lr=1e-4, val_fraction=0.2, recalibrate="isotonic")
    return Run.read(folder / "run")


def trained(folder: Path, name: str, **keys: Any) -> None:
    simulate(
        dataset=str(folder / "data.csv"), label_column="y", partition="natural:site", num_clients=3,
        model="linear", strategy="fedavg", client="shared", metrics=NAMES, backend="inline", thresholds=20,
        run_dir=str(folder / name), cache_dir=str(folder / "cache"), **keys,
    )  # fmt: skip


def test_all_that_a_run_says_is_of_its_cases(run: Run) -> None:
    cases = pd.read_parquet(run.folder / "predictions.parquet")
    sites = {site: expected(of["target"], of["score"]) for site, of in cases.groupby("site")}
    pooled = expected(cases["target"], cases["score"])
    summary = json.loads((run.folder / "summary.json").read_text())
    for name, value in pooled.items():
        values = [of[name] for of in sites.values()]
        assert summary["pooled"][name] == pytest.approx(value, abs=1e-12)
        assert summary["client-mean"][name] == pytest.approx(np.mean(values), abs=1e-12)
        assert summary["worst-client"][name] == pytest.approx(min(values), abs=1e-12)
        for client in summary["clients"].values():
            assert client[name] == pytest.approx(sites[client["name"]][name], abs=1e-12)
        assert summary["intervals"]["pooled"][name]
        assert summary["of"][name] == "single held-out cases"
    assert summary["over"]["pooled"] == "all clients' held-out cases in one place"
    again = expected(cases["target"], cases["recalibrated"])
    assert summary["recalibrated"]["pooled"]["auroc"] == pytest.approx(again["auroc"], abs=1e-12)


def test_pages_cards_and_tables_of_the_last_round_show_the_same(run: Run) -> None:
    model_card = pytest.importorskip("fedbn_flower.study.methods").model_card
    cases = pd.read_parquet(run.folder / "predictions.parquet")
    area = roc_auc_score(cases["target"], cases["score"])
    *_, last = csv_rows(run.folder / "metrics.csv")
    assert float(last["pooled-test-auroc"]) == pytest.approx(area, abs=1e-9)
    rows = [row for row in csv_rows(run.folder / "clients.csv") if row["test-auroc"]]
    for row in rows:
        of = cases[cases["site"] == "abc"[int(row["partition"])]]
        assert float(row["test-auroc"]) == pytest.approx(roc_auc_score(of["target"], of["score"]), abs=1e-9)
    assert len(rows) == 3
    page = run_page(run)
    decisions = page.partition("<h2>Decisions by site</h2>")[2].partition("</section>")[0]
    (pooled,) = re.findall("<tr><td>all sites pooled</td>.*?</tr>", decisions)
    assert f">{area:.3f}</td>" in pooled
    assert f"{shown('auroc', area)} (" in page.partition("<h2>Results</h2>")[2]
    assert "of 20 fixed thresholds" not in page
    assert f"| all sites | {area:.3f}" in model_card(run)


def test_a_run_that_keeps_no_cases_says_that_it_counts_at_thresholds(run: Run) -> None:
    trained(run.folder.parent, "thresholds", rounds=1, predictions="off")
    summary = json.loads((run.folder.parent / "thresholds/summary.json").read_text())
    assert summary["of"]["auroc"] == "counts at 20 fixed thresholds"
    assert summary["of"]["loss"] == "single held-out cases"

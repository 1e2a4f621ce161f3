"""Metrics by class, label or number, against scikit-learn on all examples in one place."""

import logging
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import metrics as sk

from fedbn_flower import UserError
from fedbn_flower.config.making import run_config
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.records.summary import Summary
from fedbn_flower.results.plotting.plots import metric_names
from fedbn_flower.results.progress import summary_table
from fedbn_flower.results.report.run_page import run_page
from fedbn_flower.results.run_reader import Run
from fedbn_flower.runtime.grid import InlineGrid

from ..records.helpers import rows_of
from ..supernodes import run_app

FINDINGS = ["Edema", "No Finding", "Rare, old"]
LABELS = '"Edema","No Finding","Rare, old"'
METRICS = "auroc,sensitivity,specificity,sensitivity-at:0.9,ece,f1,average-precision,balanced-accuracy"
KEYS = {"client": "shared", "eval_data": "local", "partition": "iid", "metrics_by_class": True}


def examples(count=300):
    """Six numbers, and three labels that three of them decide; the last one is rare."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 6)).astype(np.float32)
    return x, (x[:, :3] + 0.5 * rng.normal(size=(count, 3)) > [0, 0.3, 1.5]).astype(np.int64)


@pytest.fixture
def table(tmp_path):
    x, y = examples()
    columns = {f"x{i}": x[:, i] for i in range(6)} | {name: y[:, i] for i, name in enumerate(FINDINGS)}
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def output_of(result, x):
    with torch.no_grad():
        return result.model()(torch.tensor(x)).double()


def test_values_by_label_are_scikit_learns(run):
    x, y = examples()
    data = x[:200], y[:200], x[200:], y[200:]
    result = run(data=data, problem="multi-label", metrics=METRICS, thresholds=20_000, **KEYS)
    pooled, p = result.summary["pooled"], output_of(result, data[2]).sigmoid().numpy()
    for i, truth in enumerate(data[3].T):
        said = p[:, i] >= 0.5
        fpr, tpr, _ = sk.roc_curve(truth, p[:, i], drop_intermediate=False)
        expected = {
            "auroc": sk.roc_auc_score(truth, p[:, i]),
            "sensitivity": sk.recall_score(truth, said),
            "specificity": sk.recall_score(truth, said, pos_label=0),
            "sensitivity-at:0.9": tpr[fpr <= 0.1].max(),
            "f1": sk.f1_score(truth, said),
            "balanced-accuracy": sk.balanced_accuracy_score(truth, said),
        }
        assert {n: pooled[f"{n}-{i}"] for n in expected} == pytest.approx(expected, abs=1e-3)
    names = ["0", "1", "2"]
    assert result.summary["by-class"] == {n: names for n in METRICS.split(",") if n != "ece"}
    for name in ("auroc", "f1", "balanced-accuracy"):
        assert pooled[name] == pytest.approx(np.mean([pooled[f"{name}-{n}"] for n in names]))
    assert pooled["average-precision"] == pytest.approx(sk.average_precision_score(data[3], p), abs=3e-3)
    assert pooled["accuracy"] == pytest.approx(((p >= 0.5) == data[3]).mean(), abs=1e-6)
    losses = [sk.log_loss(data[3][:, i], p[:, i]) for i in range(3)]
    assert pooled["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert not [name for name in pooled if name.startswith("ece-")]


@pytest.mark.slow
def test_values_by_class_and_by_number_are_scikit_learns(run):
    x, y = examples()
    classes = y.sum(1)
    data = x[:200], classes[:200], x[200:], classes[200:]
    result = run(data=data, metrics="sensitivity,balanced-accuracy", **KEYS)
    recall = sk.recall_score(
        data[3], output_of(result, data[2]).argmax(1), average=None, zero_division=np.nan
    )
    for name in ("sensitivity", "balanced-accuracy"):
        found = [result.summary["pooled"][f"{name}-{i}"] for i in range(4)]
        assert np.array(found, np.float64) == pytest.approx(recall, nan_ok=True)

    data = x[:200], x[:200, :2] * [1, 10], x[200:], x[200:, :2] * [1, 10]
    result = run(data=data, metrics="rmse,r2", **KEYS)
    errors = (output_of(result, data[2]).numpy() - data[3]) ** 2
    for i, expected in enumerate(np.sqrt(errors.mean(0))):
        assert result.summary["pooled"][f"rmse-{i}"] == pytest.approx(expected, rel=1e-5)
    assert result.summary["by-class"] == {"rmse": ["0", "1"], "r2": ["0", "1"]}


@pytest.mark.slow
def test_they_are_columns_by_the_names_of_a_tables_labels(run, table):
    keys = {"dataset": str(table), "label_column": LABELS, "run_dir": "r"}
    metrics = "auroc,sensitivity"
    result = run(
        problem="multi-label", metrics=metrics, target="auroc-Edema=0.1", num_clients=12, **keys, **KEYS
    )
    names = [f"{metric}-{finding}" for metric in metrics.split(",") for finding in FINDINGS]
    (*_, last), clients = rows_of(result.folder, "metrics.csv"), rows_of(result.folder, "clients.csv")
    for prefix in ("", "pooled-", "global-", "client-mean-"):
        assert all(float(last[prefix + name]) >= 0 for name in names)
    assert not [name for name in last if name.startswith(("train-auroc", "worst-client-auroc-"))]
    rare = [row["auroc-Rare, old"] for row in clients if row["phase"] == "evaluate"]
    assert "" in rare  # a client without such an example
    assert any(rare)
    some = [float(value) for value in rare[-12:] if value]
    assert float(last["client-mean-auroc-Rare, old"]) == pytest.approx(np.mean(some))
    assert result.summary["worst-client"]["auroc-Rare, old"] == min(some)
    assert result.summary["rounds-to-target"]["metric"] == "auroc-Edema"


def test_the_report_has_a_row_a_class_and_the_line_of_a_round_has_none(run, table, capsys):
    keys = {"dataset": str(table), "label_column": LABELS, "progress": True}
    result = run(problem="multi-label", metrics="auroc,f1,ece", rounds=1, **keys, **KEYS)
    lines = [line for line in "".join(capsys.readouterr()).splitlines() if ": round " in line]
    shown = [re.findall(r"(\S+) \d+\.\d+(?: %|  )", line) for line in lines]
    assert shown == [[f"pooled-{name}" for name in ("auroc", "loss", "accuracy", "f1", "ece")]]
    assert metric_names(Run.read(result.folder)) == ["auroc", "loss", "accuracy", "f1", "ece"]
    page = run_page(Run.read(result.folder))
    pooled = result.summary["pooled"]
    for name in FINDINGS:
        cells = (f'<td class="number">{pooled[f"{metric}-{name}"]:.3f}</td>' for metric in ("auroc", "f1"))
        assert f"<tr><td>{name}</td>{''.join(cells)}</tr>" in page
    assert "F1 of each client by class" in page
    assert "AUROC, Edema" not in page.partition("All settings")[0].partition("Classes")[0]
    in_terminal = [
        column.header
        for column in summary_table(run_config({}), Summary.model_validate(result.summary)).columns
    ]
    assert in_terminal == ["model", "training examples", "auroc", "loss", "accuracy", "f1", "ece"]


def test_server_and_sites_call_classes_by_number(cache_dir, table):
    """The server does not know the names that a site's data have."""
    keys = {"dataset": "shape:6:3:numbers", "problem": "multi-label", "metrics": "auroc"}
    keys |= {"label-column": LABELS, "metrics-by-class": True, "columns": "x0,x1,x2,x3,x4,x5"}
    config = run_config({**keys, "cache-dir": str(cache_dir)})
    expected = ("loss", "accuracy", "auroc", "auroc-0", "auroc-1", "auroc-2")
    assert inputs_of(config).dataset.problem.metrics == expected
    assert inputs_of(config, str(table), str(cache_dir)).dataset.problem.metrics == expected


@pytest.mark.parametrize("keys", [{}, {"metrics": "ece"}, {"metrics": "accuracy"}])
def test_it_needs_a_metric_with_a_value_for_each_class(run, keys):
    with pytest.raises(
        UserError, match="metrics-by-class: 'true' is not allowed; expected false, or metrics"
    ):
        run(metrics_by_class=True, **keys)


def test_the_line_of_a_round_under_flwr_run_leaves_them_out(table, configured, tmp_path, caplog):
    keys = KEYS | {"dataset": str(table), "label_column": ",".join(FINDINGS[:2]), "problem": "multi-label"}
    config = configured(**keys, metrics="auroc", rounds=1, num_clients=2, run_dir=str(tmp_path / "run"))
    with caplog.at_level(logging.INFO, "flwr.fedbn"):
        run_app(config, InlineGrid(2, config.to_user_config()))
    (line,) = [message for message in caplog.messages if message.startswith("round 1: ")]
    assert re.search(r", auroc 0\.\d+, .*pooled-auroc 0\.\d+", line)
    assert "Edema" not in line
    assert "pooled-auroc-Edema" in rows_of(tmp_path / "run", "metrics.csv")[0]

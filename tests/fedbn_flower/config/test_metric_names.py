"""The key ``metrics``: names, files, what is refused."""

import json
import sys

import pytest

from fedbn_flower.config.metric_names import absolute_metrics, metric_names
from fedbn_flower.config.trust import code_in
from fedbn_flower.names import METRIC
from fedbn_flower.records.metrics import states_of
from fedbn_flower.server.federation import Federation


@pytest.fixture(autouse=True)
def _no_pictures(pictures_not_drawn):
    pass


def test_names_arguments_and_code():
    assert metric_names("none") == []
    assert metric_names("f1, auroc,sensitivity-at:0.95") == ["f1", "auroc", "sensitivity-at:0.95"]
    named = ("f1", "sensitivity-at:0.95", "mine.py:A", "package.module:A")
    assert [METRIC.is_code(name) for name in named] == [False, False, True, True]
    assert code_in("metrics", "f1,sensitivity-at:0.95") == set()
    assert code_in("metrics", "f1,mine.py:A,pack.age:B") == {"mine.py", "pack.age"}


def test_paths_are_absolute_for_other_processes(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert absolute_metrics("f1,mine.py:A") == f"f1,{tmp_path}/mine.py:A"
    assert absolute_metrics("none") == "none"


def test_metrics_of_ours_do_not_wait_for_the_import_of_torchmetrics(configured, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics", None)  # its import fails
    problem = Federation(configured(metrics="auroc,f1")).inputs.dataset.problem
    assert {"auroc", "f1"} <= {*problem.metrics}
    with pytest.raises(ImportError):
        Federation(configured(metrics="cohen-kappa"))


MISTAKES = [
    ({"metrics": "aurok"}, "metrics: unknown name 'aurok' (did you mean 'auroc'?); expected one of "),
    ({"metrics": "r2"}, "metrics: 'r2' is not allowed; expected a metric of classes: f1, dice,"),
    ({"metrics": "auroc", "dataset": "diabetes"}, "'auroc' is not allowed; expected a metric of numbers: r2"),
    ({"metrics": "f1,f1"}, "metrics: 'f1,f1' is not allowed; expected each metric once, not 'f1' twice"),
    (
        {"metrics": "f1:2"},
        "'f1:2' is not allowed; expected micro, macro or weighted after the colon, or nothing",
    ),
    ({"metrics": "sensitivity-at"}, "a specificity between 0 and 1 after a colon: sensitivity-at:0.95"),
    ({"metrics": "calibration-error"}, "expected one whose states add: MulticlassCalibrationError's state"),
    ({"metrics": "no_such.py:Mine"}, "metrics: 'no_such.py:Mine' is not allowed; expected a file"),
    ({"target": "auroc=0.9"}, "expected METRIC=VALUE with a metric of this run: loss, accuracy"),
    ({"target": "accuracy=90"}, "target: 'accuracy=90' is not allowed; expected a value from 0 to 1"),
    ({"target": "accuracy"}, "target: 'accuracy' is not allowed; expected METRIC=VALUE, or none"),
    ({"target": "accuracy=high"}, "target: 'accuracy=high' is not allowed; expected METRIC=VALUE, or none"),
    ({"thresholds": 1}, "thresholds: 1 is not allowed; expected a whole number in [10, 100000]"),
]


@pytest.fixture
def table(tmp_path):
    """A table of numbers to learn."""
    path = tmp_path / "numbers.csv"
    path.write_text("x,y\n" + "".join(f"{i},{2 * i + 0.5}\n" for i in range(40)))
    return str(path)


@pytest.mark.parametrize(("keys", "told"), MISTAKES)
def test_a_mistake_is_one_line_before_anything_starts(refusal, table, keys, told):
    keys = {key: table if value == "diabetes" else value for key, value in keys.items()}
    assert told in refusal(**keys)


@pytest.mark.slow
def test_metrics_of_numbers(finished, table, tmp_path):
    summary = finished(
        tmp_path / "run", dataset=table, metrics="r2,rmse,explained-variance", target="rmse=1000", rounds=1
    )
    assert summary["pooled"]["rmse"] == pytest.approx(summary["pooled"]["loss"] ** 0.5, rel=1e-5)
    assert summary["rounds-to-target"] == {"metric": "rmse", "target": 1000.0, "mean": 1, "global": None}


CODE = '''
import numpy as np
import torch
from torchmetrics.classification import MulticlassRecall

from fedbn_flower.clients import Metric


class Brier(Metric):
    """Mean squared error of the probabilities."""

    higher_is_better = False
    range = (0.0, 2.0)

    def batch(self, scores, targets):
        errors = scores - torch.nn.functional.one_hot(targets, self.predicted.size)
        return np.array([float(errors.square().sum()), len(scores)])

    def values(self, total):
        return total[:1] / total[1]


class Recall(MulticlassRecall):
    """One of torchmetrics."""
'''


def test_a_metric_from_a_file(finished, tmp_path):
    """One of our base, whose sums are in the file of states, and one of torchmetrics."""
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    summary = finished(
        tmp_path / "run", client="shared", metrics=f"{path}:Brier,{path}:Recall,balanced-accuracy", rounds=1
    )
    total, count = states_of(tmp_path / "run")["global"]["mine.Brier-state"]
    assert count == 360
    assert summary["global"]["mine.Brier"] == total / count
    assert summary["pooled"]["mine.Brier"] == pytest.approx(total / count)
    assert summary["pooled"]["mine.Recall"] == pytest.approx(summary["pooled"]["balanced-accuracy"])
    assert summary["compared-by"] == "mine.Brier"
    assert "mine.Brier" not in summary["higher-is-better"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["metrics"].startswith(str(path))

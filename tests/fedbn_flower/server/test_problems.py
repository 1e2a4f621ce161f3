"""Problems by name: several labels from arrays and tables, and what does not fit in one line."""

import re

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fedbn_flower import UserError
from fedbn_flower.clients import MultiLabel, Regression
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.server.federation import Federation

LABELS = ["cough", "fever", "rash"]


def examples(count=300):
    """Six numbers, and three labels that three of them decide; the last one is rare."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 6)).astype(np.float32)
    return x, (x[:, :3] > [0, 0.3, 1]).astype(np.int64)


@pytest.fixture
def arrays():
    x, y = examples()
    return x[:200], y[:200], x[200:], y[200:]


@pytest.fixture
def table(tmp_path):
    x, y = examples()
    columns = {f"x{i}": x[:, i] for i in range(6)} | {name: y[:, i] for i, name in enumerate(LABELS)}
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def test_several_label_columns_of_a_table(configured, table):
    keys = {"dataset": str(table), "label_column": ",".join(LABELS), "partition": "iid"}
    dataset = inputs_of(configured(**keys, problem="multi-label")).dataset
    assert type(dataset.problem) is MultiLabel
    assert (dataset.spec.shape, dataset.spec.outputs) == ((6,), 3)
    y = np.concatenate([dataset.train.columns["y"], dataset.test.columns["y"]])
    assert y.dtype == np.float32
    assert sorted(map(tuple, y)) == sorted(map(tuple, examples()[1]))
    rare = [part.columns["y"].prod(1).sum() for part in (dataset.train, dataset.test)]
    assert rare[1] == pytest.approx(sum(rare) / 5, abs=1)  # a fifth of each combination is held out


def test_by_default_labels_are_numbers_and_that_is_said(run, arrays, configured, table, caplog):
    """Not where regression is what was asked for."""
    run(data=arrays, rounds=1)
    (said,) = (m for m in caplog.messages if "problem=multi-label" in m)
    assert said.startswith("data: y has 3 columns of 0 and 1, which are learnt as numbers")
    caplog.clear()
    keys = {"dataset": str(table), "label_column": ",".join(LABELS), "partition": "iid"}
    federation = Federation(configured(**keys, problem="regression"))
    assert type(federation.problem) is Regression
    run(data=arrays, rounds=1, problem="regression")
    run(data=arrays, rounds=1, problem="multi-label")
    assert not [m for m in caplog.messages if "multi-label" in m]


@pytest.mark.slow
def test_lockstep_and_one_by_one_agree(run, arrays, caplog):
    pytest.importorskip("fedbn_flower.lockstep")
    keys = {
        "data": arrays,
        "problem": "multi-label",
        "client": "fedbn",
        "num_clients": 10,
        "partition": "iid",
    }
    with caplog.at_level("INFO", "flwr.fedbn"):
        together = run(**keys)
    assert "clients train 8 at a time: in lockstep" in caplog.messages
    alone = run(**keys, fast="off")
    models = [load_file(result.folder / "model.safetensors") for result in (together, alone)]
    for name, entry in models[0].items():
        np.testing.assert_allclose(entry, models[1][name], rtol=1e-4, atol=1e-5)
    rows = [result.history[["train-loss", "train-accuracy", "accuracy"]] for result in (together, alone)]
    np.testing.assert_allclose(*rows, atol=1e-4)


OF_TABLE = {"label_column": ",".join(LABELS), "problem": "multi-label", "partition": "iid"}
MISTAKES = [
    ({"problem": "multi-label"}, "problem: 'multi-label' is not .* it needs labels of 0 or 1, not classes"),
    ({"problem": "regression"}, "problem: 'regression' is not allowed; .* 'digits' is for: it needs numbers"),
    ({"problem": "characters"}, "it needs characters, not classes"),
    ({"problem": "least-squares"}, "it needs those of 'quadratic:DIM', whose optimum is known"),
    ({"problem": "multilabel"}, "problem: unknown name 'multilabel' .did you mean 'multi-label'"),
    ({"loss": "weighted-bce"}, "problem: missing.* 'multi-label', .*with loss 'weighted-bce'"),
    (OF_TABLE | {"loss": "focal"}, "it needs classes, and problem 'multi-label' has other outputs"),
    (OF_TABLE | {"label_column": "cough,rush"}, "label-column: unknown name 'rush' .did you mean 'rash'"),
    (OF_TABLE | {"label_column": "cough,cough"}, "expected each column once"),
    (OF_TABLE | {"predict": "classes"}, "expected 'numbers' with 3 label columns"),
    (OF_TABLE | {"columns": "x1,rash"}, "expected columns other than 'rash'"),
    (OF_TABLE | {"partition": "natural:rash"}, "expected another column"),
]


@pytest.mark.parametrize(("keys", "told"), MISTAKES)
def test_what_does_not_fit_is_one_line(refusal, table, keys, told):
    assert re.search(told, refusal(**keys | ({"dataset": str(table)} if "label_column" in keys else {})))


def test_other_numbers_are_no_labels(run, arrays):
    x, y, x_test, y_test = arrays
    y = y.astype(np.float32)
    y[3, 1] = 0.5
    with pytest.raises(UserError, match=r"it needs labels of 0 or 1, not 0\.5"):
        run(data=(x, y, x_test, y_test.astype(np.float32)), problem="multi-label")


def test_nodes_with_labels_have_the_shape_of_numbers(configured):
    inputs = inputs_of(configured(dataset="shape:6:3:numbers", problem="multi-label", partition="iid"))
    assert type(inputs.dataset.problem) is MultiLabel
    assert inputs.model_spec.outputs == 3

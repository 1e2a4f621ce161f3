"""Problems by name: several labels from arrays and tables, and what does not fit in one line."""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file
from sklearn import metrics as sk

from fedbn_flower import UserError, simulate
from fedbn_flower.clients import MultiLabel, Regression
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.runtime.simulation import simulate as simulated
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


@pytest.fixture
def run(cache_dir, tmp_path):
    def simulate_here(name="run", **keys):
        given = {"rounds": 2, "cache_dir": cache_dir, "backend": "inline", "progress": False}
        return simulate(**given | {"run_dir": tmp_path / name, "partition": "iid"} | keys)

    return simulate_here


def test_pooled_metrics_of_labels_are_scikit_learns(run, arrays):
    """Of two clients that share the model and divide the test set."""
    metrics = "f1,auroc,average-precision,balanced-accuracy"
    keys = {"client": "shared", "eval_data": "local", "metrics": metrics, "thresholds": 100_000}
    result = run(data=arrays, problem="multi-label", **keys)
    pooled, (x, y) = result.summary["pooled"], arrays[2:]
    with torch.no_grad():
        p = result.model()(torch.tensor(x)).double().sigmoid().numpy()
    said = p >= 0.5
    assert pooled["accuracy"] == pytest.approx((said == y).mean(), abs=1e-6)
    assert pooled["loss"] == pytest.approx(
        np.mean([sk.log_loss(y[:, i], p[:, i]) for i in range(3)]), rel=1e-5
    )
    assert pooled["f1"] == pytest.approx(sk.f1_score(y, said, average="macro", zero_division=0), abs=1e-9)
    assert pooled["auroc"] == pytest.approx(sk.roc_auc_score(y, p), abs=1e-3)
    assert pooled["average-precision"] == pytest.approx(sk.average_precision_score(y, p), abs=3e-3)
    expected = np.mean([sk.balanced_accuracy_score(y[:, i], said[:, i]) for i in range(3)])
    assert pooled["balanced-accuracy"] == pytest.approx(expected, abs=1e-9)
    assert result.summary["compared-by"] == "f1"


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
    run("asked", data=arrays, rounds=1, problem="regression")
    run("labels", data=arrays, rounds=1, problem="multi-label")
    assert not [m for m in caplog.messages if "multi-label" in m]


@pytest.mark.slow
@pytest.mark.parametrize("client", ["fedbn", "silobn"])
def test_lockstep_and_one_by_one_agree(run, arrays, client, caplog):
    pytest.importorskip("fedbn_flower.lockstep")
    keys = {"data": arrays, "problem": "multi-label", "client": client, "num_clients": 10}
    with caplog.at_level("INFO", "flwr.fedbn"):
        together = run("auto", **keys)
    assert "clients train 8 at a time: in lockstep" in caplog.messages
    alone = run("off", **keys, fast="off")
    models = [load_file(result.folder / "model.safetensors") for result in (together, alone)]
    for name, entry in models[0].items():
        np.testing.assert_allclose(entry, models[1][name], rtol=1e-4, atol=1e-5)
    rows = [result.history[["train-loss", "train-accuracy", "accuracy"]] for result in (together, alone)]
    np.testing.assert_allclose(*rows, atol=1e-4)


MISTAKES = [
    ({"problem": "multi-label"}, "problem: 'multi-label' is not .* it needs labels of 0 or 1, not classes"),
    ({"problem": "regression"}, "problem: 'regression' is not allowed; .* 'digits' is for: it needs numbers"),
    ({"problem": "characters"}, "it needs characters, not classes"),
    ({"problem": "least-squares"}, "it needs those of 'quadratic:DIM', whose optimum is known"),
    ({"problem": "multilabel"}, "problem: unknown name 'multilabel' .did you mean 'multi-label'"),
    ({"loss": "weighted-bce"}, "problem: missing.* 'multi-label', .*with loss 'weighted-bce'"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "told"), MISTAKES)
def test_a_problem_that_does_not_fit_the_data(configured, keys, told):
    with pytest.raises(UserError, match=told):
        Federation(configured(**keys))


@pytest.mark.parametrize("algorithm", [{"loss": "focal"}, {"objective": "fedrs"}])
def test_losses_and_objectives_of_classes_are_refused_for_labels(run, arrays, algorithm):
    with pytest.raises(UserError, match=r"it needs classes, and problem 'multi-label' has other outputs"):
        run(data=arrays, problem="multi-label", **algorithm)


def test_other_numbers_are_no_labels(run, arrays):
    x, y, x_test, y_test = arrays
    y = y.astype(np.float32)
    y[3, 1] = 0.5
    with pytest.raises(UserError, match=r"it needs labels of 0 or 1, not 0\.5"):
        run(data=(x, y, x_test, y_test.astype(np.float32)), problem="multi-label")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"label_column": "cough,rush"}, "label-column: unknown name 'rush' .did you mean 'rash'"),
        ({"label_column": "cough,cough"}, "expected each column once"),
        ({"label_column": "cough,rash", "predict": "classes"}, "expected 'numbers' with 2 label columns"),
        ({"label_column": "cough,rash", "columns": "x1,rash"}, "expected columns other than 'rash'"),
        ({"label_column": "cough,rash", "partition": "natural:rash"}, "expected another column"),
    ],
)
def test_mistakes_in_label_columns(configured, table, keys, told):
    with pytest.raises(UserError, match=told):
        inputs_of(configured(dataset=str(table), problem="multi-label", **keys)).dataset


def test_nodes_with_labels_have_the_shape_of_numbers(configured):
    inputs = inputs_of(configured(dataset="shape:6:3:numbers", problem="multi-label", partition="iid"))
    assert type(inputs.dataset.problem) is MultiLabel
    assert inputs.model_spec.outputs == 3


@pytest.mark.slow
def test_inline_and_ray_have_the_same_bits(configured, table, pool, tmp_path):
    keys = {"dataset": str(table), "label_column": ",".join(LABELS), "partition": "iid", "num_clients": 3}
    config = configured(**keys, problem="multi-label", loss="weighted-bce", metrics="f1,auroc")
    summaries = [
        simulated(Federation(config), tmp_path / n, p).as_json() for n, p in (("inline", None), ("ray", pool))
    ]
    for name in ("model.safetensors", "states.safetensors"):
        here, there = ((tmp_path / n / name).read_bytes() for n in ("inline", "ray"))
        assert here == there
    assert summaries[0]["pooled"] == summaries[1]["pooled"]

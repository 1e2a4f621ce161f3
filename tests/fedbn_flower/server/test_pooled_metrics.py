"""Metrics of a federation: the pooled value is that of all clients' examples in one place."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sklearn import metrics as sk

from fedbn_flower.job.initial_model import build_model
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.records.metrics import states_of
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.cohorts import cohort_of

from ..records.helpers import rows_of

UNEQUAL = {"partition": "silos:0-7,8-9", "eval_data": "local"}
"""Two clients with about 288 and 72 test examples, of different classes."""
METRICS = "auroc,f1,balanced-accuracy,ece,sensitivity-at:0.9,cohen-kappa"


def predictions(config, folder):
    """Scores and targets of the whole test set, by the run's model."""
    dataset = inputs_of(config).dataset
    model = build_model(config.model, dataset.spec, config.softmax_output, config.seed)
    entries = load_file(folder / "model.safetensors")
    model.load_state_dict({name: torch.tensor(entry) for name, entry in entries.items()})
    with torch.no_grad():
        output = model.eval()(torch.tensor(dataset.test.columns["x"]) / 255)
    return output.double().softmax(1).numpy(), dataset.test.columns["y"]


@pytest.fixture(scope="module")
def trained(configured, tmp_path_factory, pictures_never_drawn, draws_always_few):
    """A run of two clients that share the model and divide the test set, its folder and its summary."""
    folder = tmp_path_factory.mktemp("pooled") / "run"
    config = configured(**UNEQUAL, client="shared", metrics=METRICS)
    return config, folder, simulate(Federation(config), folder, None).as_json()


def test_the_pooled_value_is_scikit_learns_on_all_examples(trained):
    config, folder, summary = trained
    scores, y = predictions(config, folder)
    said = scores.argmax(1)
    pooled = summary["pooled"]
    assert pooled["f1"] == pytest.approx(sk.f1_score(y, said, average="macro"), abs=1e-12)
    assert pooled["balanced-accuracy"] == pytest.approx(sk.balanced_accuracy_score(y, said), abs=1e-12)
    assert pooled["cohen-kappa"] == pytest.approx(sk.cohen_kappa_score(y, said), abs=1e-6)
    assert pooled["auroc"] == pytest.approx(sk.roc_auc_score(y, scores, multi_class="ovr"), abs=1e-3)
    assert pooled["accuracy"] == pytest.approx(sk.accuracy_score(y, said), abs=1e-12)
    assert pooled["loss"] == pytest.approx(sk.log_loss(y, scores), rel=1e-5)
    assert {k: pooled[k] for k in pooled} == pytest.approx(summary["global"], rel=1e-5)


def test_names_are_columns_and_keys(trained):
    _, folder, summary = trained
    names = ["loss", "accuracy", *METRICS.split(",")]
    for key in ("global", "pooled", "mean", "client-mean", "worst-client", "worst-tenth", "client-std"):
        assert set(summary[key]) == set(names)
    last = rows_of(folder)[-1]
    for prefix, key in (("global-", "global"), ("pooled-", "pooled"), ("client-mean-", "client-mean")):
        assert {name: float(last[prefix + name]) for name in names} == summary[key]
    assert "train-auroc" not in last
    assert summary["compared-by"] == "auroc"
    assert summary["higher-is-better"] == [name for name in names if name not in ("loss", "ece")]
    assert float(last["worst-client-auroc"]) == min(c["auroc"] for c in summary["clients"].values())
    assert summary["worst-client"]["ece"] == max(c["ece"] for c in summary["clients"].values())


def test_states_of_clients_add_to_the_pooled_ones_in_the_file(trained):
    _, folder, _ = trained
    states = states_of(folder)
    assert states["pooled"]["confusion-matrix"].sum() == 360
    for name, state in states["pooled"].items():
        assert np.allclose(states["0"][name] + states["1"][name], state, rtol=1e-12)
        assert np.allclose(states["global"][name], state, rtol=1e-6)
    assert not states["0"]["confusion-matrix"][8:].any()  # client 0 has no example of these classes


def test_without_metrics_nothing_more_is_sent_or_written_and_all_else_is_the_same(
    finished, tmp_path, trained
):
    """The model, accuracy and loss have the same bits with and without."""
    plain = finished(tmp_path / "run", **UNEQUAL, client="shared")
    assert plain["pooled"] is None
    assert not (tmp_path / "run" / "states.safetensors").exists()
    assert not [name for name in rows_of(tmp_path / "run")[0] if name.startswith("pooled-")]
    with_f1 = finished(tmp_path / "f1", **UNEQUAL, client="shared", metrics="f1")
    states = 2 * 2 * (10 * 10 * 8 + 128)  # a matrix of each client and round as .npy
    assert with_f1["bytes-received"] == plain["bytes-received"] + states
    _, folder, _ = trained
    model = "model.safetensors"
    assert (tmp_path / "run" / model).read_bytes() == (folder / model).read_bytes()
    for plain_row, more in zip(rows_of(tmp_path / "run"), rows_of(folder), strict=True):
        names = [
            n for n in plain_row if n.endswith(("accuracy", "loss")) and "worst" not in n and "std" not in n
        ]
        assert {n: plain_row[n] for n in names} == {n: more[n] for n in names}


def test_a_client_for_which_a_metric_is_undefined_is_left_out_of_its_means(configured, tmp_path):
    """A client with one class has no ROC curve; the pooled value counts its examples all the same."""
    config = configured(partition="silos:0,1-9", eval_data="local", client="shared", metrics="auroc")
    summary = simulate(Federation(config), tmp_path / "run", None).as_json()
    alone, other = summary["clients"]["0"]["auroc"], summary["clients"]["1"]["auroc"]
    assert alone is None
    assert summary["client-mean"]["auroc"] == other
    assert summary["mean"]["auroc"] == pytest.approx(other)
    assert summary["worst-client"]["auroc"] == other
    assert summary["client-std"]["auroc"] == 0
    assert summary["client-jain"]["auroc"] == 1  # of one value
    one, two = (summary["clients"][i]["accuracy"] for i in "01")
    assert summary["client-jain"]["accuracy"] == pytest.approx((one + two) ** 2 / (2 * (one**2 + two**2)))
    scores, y = predictions(config, tmp_path / "run")
    expected = sk.roc_auc_score(y, scores, multi_class="ovr")
    assert summary["pooled"]["auroc"] == pytest.approx(expected, abs=1e-3)
    evaluated = [r for r in rows_of(tmp_path / "run", "clients.csv") if r["phase"] == "evaluate"]
    assert [r["auroc"] != "" for r in evaluated] == [False, True] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("fast", "reason"), [("auto", "in lockstep"), ("off", "fast is off")])
def test_states_come_with_the_answer_of_training_too(configured, tmp_path, fast, reason):
    """Where clients evaluate what they trained, one by one and in lockstep, and workers sum the models."""
    pytest.importorskip("fedbn_flower.lockstep")
    keys = {"partition": "iid", "num_clients": 16, "eval_data": "local", "model": "linear"}
    config = configured(**keys, eval_model="local", metrics="f1", fast=fast, strategy="fedavg", rounds=1)
    assert cohort_of(inputs_of(config)).why == reason
    summary = simulate(Federation(config), tmp_path / "run", None).as_json()
    states = states_of(tmp_path / "run")
    assert states["pooled"]["confusion-matrix"].sum() == 360
    hits = np.diagonal(states["pooled"]["confusion-matrix"]).sum()
    assert summary["pooled"]["accuracy"] == pytest.approx(hits / 360)


def test_validation_and_test_have_states_of_their_own(configured, tmp_path):
    keys = {**UNEQUAL, "client": "shared", "metrics": "f1", "val_fraction": 0.2}
    config = configured(**keys)
    summary = simulate(Federation(config), tmp_path / "run", None).as_json()
    scores, y = predictions(config, tmp_path / "run")
    expected = sk.f1_score(y, scores.argmax(1), average="macro")
    assert summary["pooled"]["f1"] == pytest.approx(expected, abs=1e-12)
    first, last = rows_of(tmp_path / "run")
    assert first["pooled-test-f1"] == ""
    assert float(last["pooled-test-f1"]) == summary["pooled"]["f1"] != float(last["pooled-f1"])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["loss=100", "f1=0.01"])
def test_a_target_of_any_metric_ends_the_run(finished, tmp_path, target):
    keys = {"client": "shared", "metrics": "f1", "rounds": 3, "stop_at_target": True}
    summary = finished(tmp_path / "run", **keys, target=target)
    assert (summary["rounds"], summary["stopped"]) == (1, "target")
    assert summary["rounds-to-target"]["metric"] == target.partition("=")[0]


@pytest.mark.slow
def test_patience_goes_by_the_pooled_headline_in_its_direction(finished, tmp_path):
    keys = {**UNEQUAL, "metrics": "ece,accuracy", "val_fraction": 0.2, "patience": 2, "rounds": 6}
    summary = finished(tmp_path / "run", **keys, client="shared", client_lr=0.2)
    values = [float(row["pooled-ece"]) for row in rows_of(tmp_path / "run")]
    assert summary["compared-by"] == "ece"
    assert summary["best-round"] == 1 + values.index(min(values))

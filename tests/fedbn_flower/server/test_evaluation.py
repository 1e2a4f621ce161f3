"""What is evaluated on what, and which mean of it is written: whole runs against plain PyTorch."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.nn import functional

from clients import CLIENTS, FedAvgClient
from fedbn_flower.job.initial_model import build_model
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation

from ..records.helpers import rows_of
from ..runtime.test_simulation import Listening

UNEQUAL = {"partition": "silos:0-7,8-9"}
"""Two clients with about 288 and 72 test examples."""


def judged(config, entries, split, rows):
    """The summed loss and the hits of a whole state dict on rows of a split."""
    dataset = inputs_of(config).dataset
    examples = dataset.train if split == "train" else dataset.test
    model = build_model(config.model, dataset.spec, config.softmax_output, config.seed)
    model.load_state_dict({name: torch.tensor(np.array(entry)) for name, entry in entries.items()})
    labels = torch.tensor(examples.columns["y"][rows])
    with torch.no_grad():
        output = model.eval()(torch.tensor(examples.columns["x"][rows]) / 255)
    loss = functional.cross_entropy(output, labels, reduction="sum").item()
    return np.array([loss, (output.argmax(1) == labels).sum().item()])


def both(row, prefix=""):
    return [float(row[f"{prefix}loss"]), float(row[f"{prefix}accuracy"])]


@pytest.mark.parametrize("weighting", ["num-examples", "uniform"])
def test_shares_of_the_test_set_come_to_the_whole_of_it(finished, tmp_path, weighting):
    """Clients that share one model and divide the test set: over examples, what the server finds on it."""
    summary = finished(tmp_path / "run", **UNEQUAL, client="shared", eval_data="local", weighting=weighting)
    for row in rows_of(tmp_path / "run"):
        np.testing.assert_allclose(both(row), both(row, "global-"), rtol=1e-5)
    clients = list(summary["clients"].values())
    plain = {key: (clients[0][key] + clients[1][key]) / 2 for key in ("accuracy", "loss")}
    assert both(row, "client-mean-") == pytest.approx([plain["loss"], plain["accuracy"]])
    assert abs(plain["accuracy"] - summary["mean"]["accuracy"]) > 0.01
    assert summary["client-mean"] == pytest.approx(plain)
    assert [summary["mean"]["loss"], summary["mean"]["accuracy"]] == both(row)
    trained = [r for r in rows_of(tmp_path / "run", "clients.csv") if r["phase"] == "train"][-2:]
    weights = [int(r["num-examples"]) if weighting == "num-examples" else 1 for r in trained]
    expected = np.average([float(r["train-accuracy"]) for r in trained], weights=weights)
    assert float(row["train-accuracy"]) == pytest.approx(expected)


def replies_of(config, folder):
    """Every client's trained model, by partition, and the last row of metrics.csv."""
    federation, grid = Federation(config), Listening(config)
    results = RunFolder(folder, federation)
    federation.run(grid, [results])
    answers = [m for m in grid.heard if m.metadata.message_type == "train" and m.metadata.reply_to_message_id]
    models = [{n: a.numpy() for n, a in m.content["arrays"].items()} for m in answers]
    return models, rows_of(folder)[-1]


@pytest.mark.parametrize("eval_data", ["local", "global"])
def test_clients_may_evaluate_the_model_they_have_just_trained(configured, tmp_path, eval_data):
    (tmp_path / "run").mkdir()
    chosen = {**UNEQUAL, "client": "shared", "eval_model": "local", "eval_data": eval_data, "rounds": 1}
    config = configured(**chosen, weighting="uniform")
    models, row = replies_of(config, tmp_path / "run")
    every = np.arange(360)
    shares = inputs_of(config).partitions.test if eval_data == "local" else [every, every]
    sums = [judged(config, model, "test", rows) for model, rows in zip(models, shares, strict=True)]
    sizes = [len(rows) for rows in shares]
    np.testing.assert_allclose(both(row), sum(sums) / sum(sizes), rtol=1e-4)
    plain = sum(s / n for s, n in zip(sums, sizes, strict=True)) / 2
    np.testing.assert_allclose(both(row, "client-mean-"), plain, rtol=1e-4)


def test_a_client_that_does_not_say_how_many_examples_is_not_weighed_by_others(
    configured, tmp_path, monkeypatch
):
    """Its ``num-examples`` are training examples: there is no mean over held-out ones."""

    class Silent(FedAvgClient):
        def fit(self, parameters, config):
            parameters, count, metrics = super().fit(parameters, config)
            return parameters, count, {k: v for k, v in metrics.items() if k != "eval-examples"}

    monkeypatch.setitem(CLIENTS, "silent", Silent)
    config = configured(**UNEQUAL, client="silent", eval_model="local", eval_data="local", rounds=1)
    summary = simulate(Federation(config), tmp_path / "run", None).as_json()
    (row,) = rows_of(tmp_path / "run")
    assert row["accuracy"] == row["loss"] == ""
    assert summary["mean"] == {"accuracy": None, "loss": None}
    assert 0 < summary["client-mean"]["accuracy"] == float(row["client-mean-accuracy"])


@pytest.mark.parametrize("eval_model", ["aggregated", "local"])
def test_the_validation_share_is_for_the_rounds_and_the_test_set_for_the_end(
    configured, tmp_path, eval_model
):
    """Where clients evaluate one model, their shares come to the whole of either set."""
    keys = UNEQUAL | {"client": "shared", "eval_data": "local", "val_fraction": 0.3}
    config = configured(**keys, eval_model=eval_model)
    summary = simulate(Federation(config), tmp_path / "run", None).as_json()
    first, last = rows_of(tmp_path / "run")
    assert first["test-accuracy"] == first["client-mean-test-accuracy"] == first["global-test-accuracy"] == ""
    model, parts = load_file(tmp_path / "run" / "model.safetensors"), inputs_of(config).partitions
    expected = judged(config, model, "train", parts.val_rows) / len(parts.val_rows)
    np.testing.assert_allclose(both(last, "global-"), expected, rtol=1e-4)
    expected = judged(config, model, "test", np.arange(360)) / 360
    np.testing.assert_allclose(both(last, "global-test-"), expected, rtol=1e-4)
    if eval_model == "aggregated":
        np.testing.assert_allclose(both(last), both(last, "global-"), rtol=1e-5)
        np.testing.assert_allclose(both(last, "test-"), both(last, "global-test-"), rtol=1e-5)
    for key, prefix in (("global", "global-test-"), ("mean", "test-"), ("client-mean", "client-mean-test-")):
        assert [summary[key]["loss"], summary[key]["accuracy"]] == both(last, prefix)


@pytest.mark.parametrize(("fraction", "asked"), [(0.0, 0), (0.5, 2)])
def test_a_share_of_the_clients_evaluates(finished, tmp_path, fraction, asked):
    keys = {"partition": "iid", "num_clients": 4, "client": "shared", "fraction_train": 0.5}
    summary = finished(tmp_path / "run", **keys, fraction_evaluate=fraction)
    rows = rows_of(tmp_path / "run", "clients.csv")
    for n in ("1", "2"):
        phases = [row["phase"] for row in rows if row["round"] == n]
        assert (phases.count("train"), phases.count("evaluate")) == (2, asked)
    assert len(summary["clients"]) == asked
    assert all(float(row["global-accuracy"]) for row in rows_of(tmp_path / "run"))
    if not asked:
        assert summary["mean"] is summary["client-mean"] is None
        assert {row["accuracy"] + row["client-mean-accuracy"] for row in rows_of(tmp_path / "run")} == {""}

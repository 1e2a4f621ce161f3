"""What a run tells of itself, worked out anew from its rows and models, or by hand."""

import json

import numpy as np
import pytest
import torch
from rich.console import Console

from clients import ContextStore, FedAvgClient, Memory
from fedbn_flower import UserError, load_model
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.progress import progress
from fedbn_flower.results.run_reader import Run
from fedbn_flower.results.summary import to_target
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.inputs import local_task
from tests.quick import diagonal_quick

from ..records.helpers import rows_of

LOCAL = {"num_clients": 4, "partition": "dirichlet:0.3", "eval_data": "local", "client": "fedbn"}


def reported(folder, phase, figure):
    """By round, a figure of every client."""
    found = {}
    for row in rows_of(folder, "clients.csv"):
        if row["phase"] == phase:
            found.setdefault(row["round"], []).append(float(row[figure]))
    return found


@pytest.mark.parametrize("eval_model", ["aggregated", "local"])
def test_spread_and_classes_are_those_of_the_examples_and_the_saved_models(configured, tmp_path, eval_model):
    """Hits of each client's own model on its own share, example by example."""
    config = configured(**LOCAL, eval_model=eval_model)
    output = simulate(Federation(config), tmp_path, None).as_json()
    rows = {(int(r["partition"]), r["class"]): r for r in rows_of(tmp_path, "classes.csv")}
    assert len(rows) == 40
    assert {row["round"] for row in rows.values()} == {"2"}
    count, hits = np.zeros(10), np.zeros(10)
    for partition in range(4):
        test = local_task(config, partition, {}).evaluation["test"]
        images, labels = next(iter(test.load([np.arange(len(test))])))
        with torch.no_grad():
            said = load_model(tmp_path, partition)(images).argmax(1)
        for label in range(10):
            row, own = rows[partition, str(label)], labels == label
            assert int(row["examples"]) == int(own.sum())
            if eval_model == "aggregated":
                right = int((said == label)[own].sum())
                assert (float(row["accuracy"] or 0)) == pytest.approx(right / max(1, int(own.sum())))
            assert (row["accuracy"] == "") == (not own.any())
            count[label] += int(row["examples"])
            hits[label] += int(row["examples"]) * float(row["accuracy"] or 0)
    assert any(row["accuracy"] == "" for row in rows.values())
    assert output["per-class"]["examples"] == count.tolist()
    assert output["per-class"]["names"] == [str(i) for i in range(10)]
    assert output["per-class"]["accuracy"] == pytest.approx((hits / count).tolist())
    assert hits.sum() / count.sum() == pytest.approx(output["mean"]["accuracy"])
    assert output["global-per-class"] is None
    phase = "evaluate" if eval_model == "aggregated" else "train"
    accuracies, losses = (reported(tmp_path, phase, name) for name in ("accuracy", "loss"))
    for row in rows_of(tmp_path):
        values = accuracies[row["round"]]
        assert float(row["worst-client-accuracy"]) == float(row["worst-tenth-accuracy"]) == min(values)
        assert float(row["client-std-accuracy"]) == pytest.approx(np.var(values) ** 0.5)
    assert output["worst-client"] == {"accuracy": min(accuracies["2"]), "loss": max(losses["2"])}
    assert output["client-std"]["loss"] == pytest.approx(np.std(losses["2"]))


def test_the_global_model_has_classes_too(configured, tmp_path):
    config = configured(client="shared", val_fraction=0.2)
    output = simulate(Federation(config), tmp_path, None).as_json()
    found, labels = output["global-per-class"], inputs_of(config).dataset.test.columns["y"]
    assert found["examples"] == np.bincount(labels, minlength=10).tolist()
    mean = np.dot(found["accuracy"], found["examples"]) / len(labels)
    assert mean == pytest.approx(output["global"]["accuracy"])
    assert found["accuracy"] == output["per-class"]["accuracy"]
    assert output["per-class"]["examples"] == found["examples"]  # distinct ones, though every client has them
    assert not any("class" in name for name in rows_of(tmp_path)[0])
    assert not any("class" in name for name in rows_of(tmp_path, "clients.csv")[0])


def test_a_site_does_not_tell_of_which_classes_its_own_examples_are(configured, write_site, tmp_path):
    config = configured(client="shared")
    write_site(config, 1, tmp_path / "site")
    asked = {"eval-splits": "test", "classes": 10}
    for node, output in (
        ({}, {"class-hits", "class-examples"}),
        ({"data-path": str(tmp_path / "site")}, set()),
    ):
        client = FedAvgClient(local_task(config, 1, node), Memory(ContextStore()))
        figures = client.evaluate(client.get_parameters({}), asked)[2]
        assert {name for name, value in figures.items() if isinstance(value, list)} == output


class Plain(FedAvgClient):
    """It evaluates in its own way."""

    def evaluate(self, parameters, config):
        return 1.0, 7, {"accuracy": 0.5}


def test_a_client_that_counts_no_classes_is_fine(finished, tmp_path):
    output = finished(tmp_path, client=f"{__name__}:Plain")
    assert output["per-class"] is None
    assert output["worst-client"] == {"loss": 1.0, "accuracy": 0.5}
    assert not (tmp_path / "classes.csv").exists()


def test_control_vectors_are_counted(finished, tmp_path):
    keys = {"model": "mlp-bn", "client": "shared", "num_clients": 2, "partition": "iid", "rounds": 1}
    output = finished(tmp_path, **keys, strategy="scaffold", objective="scaffold")
    assert output["bytes-sent"] == 2 * (2 * WHOLE_MODEL + CONTROL)
    assert output["bytes-received"] == 2 * (WHOLE_MODEL + CONTROL)


def test_numbers_have_no_classes(finished, tmp_path):
    output = finished(tmp_path, dataset="quadratic:3", client="shared", num_clients=3)
    assert (output["per-class"], output["global-per-class"]) == (None, None)
    assert output["worst-client"]["distance"] == pytest.approx(output["mean"]["distance"])  # a mean rounds


# mlp-bn of 8x8 digits: float32 numbers of its entries, and 128 bytes before each array on the wire.
LINEAR, NORM = 4 * (64 * 128 + 128 + 128 * 10 + 10), 4 * 128
FEDBN_MODEL = LINEAR + 4 * 128
WHOLE_MODEL = (
    LINEAR + 4 * NORM + 8 + 9 * 128
)  # two parameters and two statistics of 128, a counter of 8 bytes
CONTROL = LINEAR + 2 * NORM + 6 * 128


def test_bytes_are_those_of_every_array_and_seconds_are_split(finished, tmp_path):
    """Two messages a client and round with the model, and one back. To the millisecond that is written. A
    target that is not reached has no round and ends nothing."""
    keys = {"model": "mlp-bn", "client": "fedbn", "strategy": "fedavg"}
    output = finished(tmp_path, **keys, target="accuracy=1", stop_at_target=True)
    assert output["rounds-to-target"] == {"metric": "accuracy", "target": 1.0, "mean": None, "global": None}
    assert output["stopped"] is None
    assert output["bytes-sent"] == 2 * 2 * 2 * FEDBN_MODEL
    assert output["bytes-received"] == 2 * 2 * FEDBN_MODEL
    rows = rows_of(tmp_path)
    assert [row["bytes-sent"] for row in rows] == [str(2 * 2 * FEDBN_MODEL)] * 2
    parts = ("train-seconds", "evaluate-seconds", "server-seconds")
    for row in rows:
        assert sum(float(row[part]) for part in parts) == pytest.approx(float(row["seconds"]), abs=0.002)
        assert all(float(row[part]) >= 0 for part in parts)
    for part in parts:
        total = output["seconds-split"][part.removesuffix("-seconds")]
        assert total == pytest.approx(sum(float(row[part]) for row in rows), abs=0.003)
    assert 2 * 2 / output["client-updates-per-second"] == pytest.approx(output["seconds"], abs=0.001)


@pytest.mark.parametrize(("clock", "resumed"), diagonal_quick(["uniform", "none", "real"], [False, True]))
def test_the_first_round_that_reaches_the_target_is_reported(finished, tmp_path, resumed, clock, monkeypatch):
    """With the seconds of the simulated clock; of the real one where clients are not simulated by us."""
    if clock == "real":
        monkeypatch.setattr(InlineGrid, "place", {"backend": "flower"})
    keys = {"client": "shared", "fraction_evaluate": 1.0, "target": "accuracy=0.5"}
    keys["devices"] = "none" if clock == "real" else clock
    output = finished(tmp_path, **keys, rounds=1 if resumed else 4)
    if resumed:
        output = finished(tmp_path, **keys, rounds=4, resume=str(tmp_path))
    rows, run = rows_of(tmp_path), Run.read(tmp_path)
    reached = {
        group: next(n for n, row in enumerate(rows, start=1) if float(row[name]) >= 0.5)
        for group, name in (("mean", "accuracy"), ("global", "global-accuracy"))
    }
    assert output["rounds-to-target"] == {"metric": "accuracy", "target": 0.5, **reached}
    assert 1 < reached["mean"] < 4
    assert output["bytes-sent"] == sum(int(row["bytes-sent"]) for row in rows)
    shown = {"uniform": ["simulated seconds"], "none": [], "real": ["seconds"]}[clock]
    for group, last in reached.items():
        until = rows[:last]
        costs = {"bytes": sum(int(row["bytes-sent"]) + int(row["bytes-received"]) for row in until)}
        if clock == "uniform":
            costs["simulated-seconds"] = float(until[-1]["simulated-seconds"])
        if clock == "real":
            costs["seconds"] = pytest.approx(sum(float(row["seconds"]) for row in until), abs=0.004)
        assert output["costs-to-target"][group] == costs
    assert run.shown_costs == shown
    for cost in shown:
        expected = pytest.approx(output["costs-to-target"]["mean"][cost.replace(" ", "-")], abs=0.004)
        assert run.costs(cost)[reached["mean"]] == expected
        assert to_target(run.summary)[f"{cost} to 0.5: mean over examples"] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "figure"), [(1.0, "accuracy"), (0.0, "global-accuracy")])
def test_a_run_that_stops_at_its_target_is_the_run_of_so_many_rounds(finished, tmp_path, asked, figure):
    keys = {"client": "shared", "fraction_evaluate": asked, "target": "accuracy=0.5"}
    output = finished(tmp_path / "a", **keys, rounds=9, stop_at_target=True)
    values = [float(row[figure]) for row in rows_of(tmp_path / "a")]
    assert values[-1] >= 0.5 > max(values[:-1])
    assert (output["stopped"], output["rounds"]) == ("target", len(values))
    assert 1 < len(values) < 9
    same = finished(tmp_path / "b", **keys, rounds=len(values))
    for key in ("global", "mean", "per-class", "global-per-class", "rounds-to-target"):
        assert output[key] == same[key]
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    with pytest.raises(UserError, match="expected a run that did not end by itself; this one did, after"):
        finished(tmp_path / "a", **keys, rounds=20, resume=str(tmp_path / "a"))


OF_NUMBERS = {"dataset": "quadratic:3", "client": "shared"}
TARGET = {"target": "accuracy=0.8", "stop_at_target": True}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"stop_at_target": True}, "stop-at-target: True is not allowed; expected false without target"),
        (TARGET | {"fraction_evaluate": 0.0}, "with fraction-evaluate 0: nothing is evaluated"),
        (OF_NUMBERS | {"target": "accuracy=0.5"}, "a metric of this run: loss, distance"),
    ],
)
def test_targets_that_cannot_be(refusal, keys, line):
    assert line in refusal(**keys)


@pytest.mark.slow
@pytest.mark.parametrize("eval_model", ["aggregated", "local"])
def test_rounds_between_evaluations_evaluate_nothing(configured, finished, tmp_path, eval_model, capsys):
    config = configured(rounds=3, evaluate_every=2, eval_model=eval_model, client="shared")
    simulate(Federation(config), tmp_path / "run", None, [progress(config, Console(soft_wrap=True))])
    finished(tmp_path / "full", rounds=3, eval_model=eval_model, client="shared")
    few, all_ = (rows_of(tmp_path / name) for name in ("run", "full"))
    columns = ["loss", "accuracy", "client-mean-accuracy", "global-accuracy", "worst-client-accuracy"]
    for n, row, expected in zip(range(1, 4), few, all_, strict=True):
        wanted = [expected[name] for name in columns] if n in (2, 3) else [""] * 5
        assert [row[name] for name in columns] == wanted
        assert row["train-loss"] == expected["train-loss"]
    output = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("run", "full")]
    assert output[0]["clients"] == output[1]["clients"]
    lines = capsys.readouterr().out.splitlines()
    assert ["train-loss" in line for line in lines] == [True, False, False]
    assert not any("nan" in line for line in lines)

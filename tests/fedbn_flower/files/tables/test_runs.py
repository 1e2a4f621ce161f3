"""Whole runs on tables and on arrays that are no images."""

import json

import numpy as np
import pandas as pd
import pytest

from fedbn_flower import UserError, simulate
from fedbn_flower.config.making import run_config
from fedbn_flower.job.held_out import whole_split
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.participation import held_out_clients
from fedbn_flower.records.summary import Summary
from fedbn_flower.results.progress import summary_table
from fedbn_flower.results.resume import read_configuration
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.cohorts import cohort_of
from fedbn_flower.site.inputs import local_task


@pytest.fixture
def patients(tmp_path):
    """400 patients of 25 unequal hospitals, whose scales differ: two numbers, a category and an outcome."""
    rng = np.random.default_rng(0)
    hospital = rng.choice(25, 400, p=np.arange(1, 26) / 325)
    age, dose = rng.normal(50, 10, 400), rng.normal(0, 1, 400)
    sex = rng.choice(["f", "m"], 400)
    ill = (age - 50) / 10 + dose + (sex == "m") > 0
    table = {"hospital": [f"h{i}" for i in hospital], "age": age, "dose": dose * (1 + hospital), "sex": sex}
    pd.DataFrame(table | {"outcome": ill, "cost": 3 * dose + age / 10}).to_csv(
        tmp_path / "t.csv", index=False
    )
    return tmp_path / "t.csv"


def bits(result):
    return (result.folder / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_hospitals_learn_and_go_on_to_the_same_bits(run, patients):
    keys = {
        "dataset": patients, "label_column": "outcome", "columns": "age,dose,sex", "client": "fedbn",
        "partition": "natural:hospital", "num_clients": 10, "eval_data": "global", "rounds": 8,
        "local_epochs": 2, "batch_size": 32,
    }  # fmt: skip
    whole = run(**keys)
    accuracies = [client["accuracy"] for client in whole.summary["clients"].values()]
    assert np.mean(accuracies) > 0.75
    part = run(**keys | {"rounds": 3}, run_dir="part")
    resumed = simulate(resume=part.folder, rounds=8, progress=False)
    assert bits(resumed) == bits(whole)
    assert resumed.summary["clients"] == whole.summary["clients"]


def test_a_client_sees_its_own_rows_standardised(configured, patients):
    config = configured(dataset=str(patients), label_column="outcome", columns="dose,sex", partition="iid")
    for number in (0, 1):
        task = local_task(config, number, {})
        x, _ = task.train.prepared(np.arange(len(task.train)))
        assert x[:, 0].mean().item() == pytest.approx(0, abs=1e-5)
        assert x[:, 0].std(correction=0).item() == pytest.approx(1, abs=1e-5)
        assert set(x[:, 1:].flatten().tolist()) == {0, 1}


@pytest.mark.parametrize("reference", ["none", "pooled"])
def test_the_server_standardises_by_the_rows_that_train(configured, patients, reference):
    """Neither by validation rows nor by those of a client that is held out."""
    config = configured(
        dataset=str(patients), label_column="outcome", columns="dose,sex", partition="iid", num_clients=3,
        holdout_clients=1, val_fraction=0.2, client="shared", reference=reference,
    )  # fmt: skip
    (held_out,) = held_out_clients(config.seed, 3, 1)
    plain = config.model_copy(update={"reference": "none"})
    rows = np.concatenate([own for i, own in enumerate(inputs_of(plain).partitions.train) if i != held_out])
    dataset = Federation(config).dataset
    doses, dose = dataset.train.columns["x"][rows, 0], dataset.test.columns["x"][:, 0]
    assert len(rows) < 0.6 * len(dataset.train)
    expected = (dose.astype(float) - doses.mean(dtype=float)) / doses.std(dtype=float)
    test = whole_split(inputs_of(config), "test")
    np.testing.assert_allclose(test.prepared(np.arange(len(test)))[0][:, 0], expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("label", "client"), [("outcome", "fedbn"), ("cost", "shared")])
def test_twenty_hospitals_in_lockstep_are_the_same_to_rounding(configured, patients, label, client):
    """Each standardised by its own rows, in the cohort too."""
    pytest.importorskip("fedbn_flower.lockstep")
    keys = {
        "dataset": str(patients), "label_column": label, "columns": "age,dose,sex", "client_lr": 0.01,
        "partition": "natural:hospital", "num_clients": 20, "client": client, "strategy": "fedavg",
    }  # fmt: skip
    config, alone = configured(**keys), configured(**keys, fast="off")
    assert cohort_of(inputs_of(config)).why == "in lockstep"
    assert len({len(rows) for rows in inputs_of(config).partitions.train}) > 5
    results = [
        Federation(c).run(InlineGrid(20, c.to_user_config(), cohort), [])
        for c, cohort in ((config, 8), (alone, 1))
    ]
    for name, array in results[0].items():
        np.testing.assert_allclose(array.numpy(), results[1][name].numpy(), atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("values", [1, 2])
def test_numbers_are_learnt_from_images(run, values):
    """Of bytes the same is learnt as of what they are over 255; the data have no classes to be dealt by."""
    x = np.random.default_rng(0).integers(0, 256, (100, 8, 8)).astype(np.uint8)
    y = np.stack([x.mean((1, 2)), x[:, 0].mean(1)], axis=1)[:, :values] / 255
    y = y[:, 0] if values == 1 else y
    of_bytes, of_floats = (
        run(data=(x, y, x, y), num_clients=2) for x in (x, x[:, None].astype(np.float32) / 255)
    )
    assert bits(of_bytes) == bits(of_floats)
    assert of_bytes.summary["mean"] == of_floats.summary["mean"]
    assert set(of_bytes.summary["mean"]) == {"loss", "mae"}
    config = json.loads((of_bytes.folder / "config.json").read_text())
    assert (config["partition"], config["shape"]) == ("iid", f"shape:1x8x8:{values}:numbers")
    with pytest.raises(UserError, match=r"'dirichlet:0.5' is not allowed; expected 'iid' .* have no classes"):
        run(data=(x, y, x, y), num_clients=2, partition="dirichlet:0.5")


ROWS = (np.ones((4, 2)), np.arange(4)) * 2


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"test": [1]}, "test: given without data"),
        ({"data": ROWS, "test": [1]}, "test: not used with arrays"),
        ({"data": ROWS, "partition": "natural:client"}, "natural:client' is not"),
        ({"data": (ROWS[0], np.ones(4) / 2) * 2, "partition": "shards:1"}, "the data have no classes"),
        (
            {"data": [[([0.0], 1)] * 9], "partition": "natural:site"},
            "natural:site' is not allowed; expected another partition: data is given as arrays",
        ),
        (
            {"data": (np.ones((4, 8, 8), np.uint8), np.arange(4)) * 2, "label_column": "y"},
            "label-column: 'y' is not allowed; expected 'auto': data is given as arrays",
        ),
    ],
)
def test_what_arrays_do_not_have_is_refused(run, keys, words):
    with pytest.raises(UserError) as caught:
        run(**keys)
    assert words in str(caught.value)


def test_whose_data_a_client_has_is_reported(run, patients):
    """Four of 25 hospitals are drawn: which ones is written down, and shown."""
    result = run(
        dataset=patients, label_column="outcome", partition="natural:hospital", num_clients=4, rounds=1
    )
    names = json.loads((result.folder / "config.json").read_text())["client-names"]
    table = pd.read_csv(patients)
    assert len(set(names)) == 4
    assert set(names) <= set(table["hospital"])
    config = run_config({k: v for k, v in read_configuration(result.folder).items() if k != "resume"})
    shown = summary_table(config, Summary.model_validate(result.summary))
    assert list(shown.columns[0].cells)[-4:] == [f"client {name}" for name in names]
    clients = json.loads((result.folder / "summary.json").read_text())["clients"]
    assert {int(number): client["name"] for number, client in clients.items()} == dict(enumerate(names))

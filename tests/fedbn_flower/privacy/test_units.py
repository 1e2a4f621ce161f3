"""Whole patients: all rows with one value of a column are drawn, clipped, counted and held out together."""

import json

import numpy as np
import pytest
from PIL import Image

from fedbn_flower.cli import main
from fedbn_flower.core.errors import UserError
from fedbn_flower.data.splits import held_out_fifth, held_out_units, numbered, split_at_random
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.tasks import rows_of, task_of
from fedbn_flower.job.what_is_learnt import what_is_learnt
from fedbn_flower.privacy import accounts
from fedbn_flower.server.federation import Federation
from tests.fedbn_flower.data.test_own_data import Sites

from .asked import KINDS, RUN, Site
from .runs import of_examples, run_on, simulated

KEYS = {
    "columns": "age,sex=f|m", "label_column": "outcome=0|1", "dp_scale": "age=50:20", "batch_size": 8,
    "dp_unit": "patient",
}  # fmt: skip


def write(path, patients, site=lambda patient: patient % 3):
    """Write a table with a row for each of ``patients``, in this order."""
    rows = [
        f"p{patient},{site(patient)},{20 + i % 60},{'fm'[i % 2]},{i % 3 == 0:d}"
        for i, patient in enumerate(patients)
    ]
    path.write_text("patient,site,age,sex,outcome\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def table(tmp_path):
    """60 patients with 1 to 5 rows, in no order."""
    patients = np.repeat(np.arange(60), 1 + np.arange(60) % 5)
    return write(tmp_path / "patients.csv", np.random.default_rng(0).permutation(patients).tolist())


@pytest.fixture
def by_unit(configured, table):
    return lambda **keys: of_examples(
        configured, **{"dataset": table, "partition": "natural:site", **KEYS, **keys}
    )


def patients_of(inputs, split, rows):
    return set(getattr(inputs.dataset, split).units[rows].tolist())


# ---- who is held out ------------------------------------------------------------------------------


def test_units_are_numbered_in_the_order_in_which_they_come():
    assert numbered(np.array(["b", "a", "b", "c", "a"])).tolist() == [0, 1, 0, 2, 1]
    assert numbered(np.array([7, 3, 9])).tolist() == [0, 1, 2]
    assert not len(numbered(np.array([], np.int64)))


def test_where_each_row_is_a_unit_rows_are_divided_as_without_units():
    rng = np.random.default_rng(3)
    y, owners = rng.integers(0, 3, 100), rng.integers(0, 4, 100)
    for of in (None, owners):
        plain, by_unit = held_out_fifth(y, of), held_out_units(y, rng.permutation(100), of)
        assert all(map(np.array_equal, plain, by_unit))
    found = [split_at_random(np.random.default_rng(1), 100, 0.3, units) for units in (None, np.arange(100))]
    assert all(map(np.array_equal, *found))
    order = np.random.default_rng(1).permutation(100)
    assert all(map(np.array_equal, found[0], (order[:30], order[30:])))


def test_no_patient_of_a_run_is_trained_on_and_evaluated(by_unit):
    inputs = inputs_of(by_unit(val_fraction=0.25))
    shares = inputs.partitions
    train, val = (patients_of(inputs, "train", rows) for rows in (shares.train.rows, shares.val_rows))
    test = patients_of(inputs, "test", np.arange(len(inputs.dataset.test)))
    assert (len(train), len(val), len(test)) == (36, 12, 12)
    assert len(train | val | test) == 60


def test_no_patient_of_a_site_is_trained_on_and_evaluated(by_unit, table, tmp_path):
    config = by_unit(dataset="shape:3:2", partition="iid", val_fraction=0.25)
    inputs = inputs_of(config, table, str(tmp_path / "cache"))
    rows = rows_of(inputs, 1)
    train, val = (patients_of(inputs, "train", rows[split]) for split in ("train", "val"))
    assert (len(train), len(val)) == (36, 12)
    assert not train & val
    assert np.all(np.diff(rows["train"]) > 0)


# ---- what is done, accounted and said -------------------------------------------------------------


def test_a_client_trains_and_is_accounted_by_patients(by_unit, tmp_path):
    """48 patients are left to train on, and 8 of a site's are in a batch."""
    inputs = inputs_of(by_unit(rounds=2, local_epochs=1))
    counts = inputs.protected.tolist()
    assert sum(counts) == 48
    assert counts != inputs.partitions.train.sizes.tolist()
    for i, count in enumerate(counts):
        task = task_of(inputs, i)
        assert task.size == count == len(patients_of(inputs, "train", inputs.partitions.train[i]))
        assert len(task.units) == len(task.train) > count
    found = simulated(by_unit(rounds=2, local_epochs=1), tmp_path / "run")["privacy"]
    plans = {
        count: accounts.Plan("poisson", 8 / count, count, 2 * (-(-count // 8) - (count % 8 == 1)), 1e-3)
        for count in counts
    }
    assert found["epsilon"] == max(accounts.epsilon(1.0, plan) for plan in plans.values())
    assert found["accounted"] == [
        {"units": plan.population, "probability": plan.probability, "steps": plan.rounds}
        for plan in (plans[one["units"]] for one in found["accounted"])
    ]
    assert (found["notion"], found["adjacency"]) == ("unit, at each client", "unit-replaced-by-nothing")
    assert found["unit"] == "all rows with one value of 'patient'"
    assert "a unit at several clients: their epsilons add up" in found["outside"]
    first, *_ = map(json.loads, (tmp_path / "run" / "privacy.jsonl").read_text().splitlines())
    assert first["unit"] == "patient"


def test_what_is_said_before_the_first_round(by_unit):
    notes = [str(note) for note in what_is_learnt(inputs_of(by_unit()))]
    assert "left out: 'patient', by whose values rows are protected together" in notes
    assert (
        "examples: rows with one value of 'patient' are protected together: 48 values, in training and "
        "validation" in notes
    )
    assert any("a fixed 20 % of the values of 'patient', with all of their rows, is held" in n for n in notes)
    assert not [line for line in Federation(by_unit()).warnings if "dp-unit" in line]


def test_a_patient_at_several_clients_is_warned_of(by_unit):
    (line,) = [x for x in Federation(by_unit(partition="iid")).warnings if x.startswith("dp-unit")]
    assert "of 48 values of 'patient' have rows at several clients: each client protects its own" in line


def test_the_report_and_the_card_name_the_unit(by_unit, tmp_path, pictures_not_drawn):
    simulated(by_unit(rounds=1), tmp_path / "run")
    release = pytest.importorskip("fedbn_flower.study.release").release
    card = " ".join(release(tmp_path / "run", tmp_path / "released").read_text().split())
    assert "**Who is protected:** all rows with one value of 'patient' at a client, together." in card
    assert "The odds that a unit was among a client's training data" in card
    assert main(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Protected are all rows with one value of &#x27;patient&#x27; at a client, together" in page


def test_pictures_that_a_table_names_have_units_too(configured, tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    rows = []
    for i in range(40):
        Image.fromarray(np.full((8, 8), i, np.uint8)).save(folder / f"{i}.png")
        rows.append(f"{i}.png,p{i // 4},{i % 2}")
    (folder / "labels.csv").write_text("file,patient,label\n" + "\n".join(rows) + "\n")
    keys = {"label_column": "label=0|1", "dp_unit": "patient", "num_clients": 1, "batch_size": 4}
    config = of_examples(configured, dataset=str(folder), **keys)
    inputs = inputs_of(config)
    assert inputs.protected.tolist() == [8]
    assert not set(inputs.dataset.train.units) & set(inputs.dataset.test.units)
    assert simulated(config, tmp_path / "run")["privacy"]["accounted"][0]["units"] == 8


# ---- at sites -------------------------------------------------------------------------------------


@pytest.fixture
def sites(tmp_path):
    """The node configs of three sites, each with a table of its own, and the folder of all tables."""
    (tmp_path / "tables").mkdir()
    nodes = []
    for i, count in enumerate((40, 50, 60)):
        patients = np.random.default_rng(i).permutation(np.repeat(np.arange(count), 1 + np.arange(count) % 3))
        path = write(tmp_path / "tables" / f"site-{i}.csv", (1000 * i + patients).tolist())
        nodes.append(
            {
                "data-path": path, "partition-id": i, "cache-dir": str(tmp_path / "cache"),
                "state-dir": str(tmp_path / f"state-{i}"),
            }
        )  # fmt: skip
    return nodes


def test_sites_account_their_own_patients(configured, sites, tmp_path):
    keys = {**KEYS, "dp_seed": -1, "dataset": "shape:3:2", "rounds": 2}
    config = of_examples(configured, **{**keys, "dp_noise": 0, "dp_epsilon": 4.0})
    summary = run_on(Sites(config, sites), config, tmp_path / "run")
    assert 3.9 < summary["privacy"]["epsilon"] <= 4
    assert max(one["units"] for one in summary["privacy"]["accounted"]) == 48
    noise = summary["privacy"]["noise"]
    for i, count in enumerate((32, 40, 48)):  # a fifth of the patients is held out
        (path,) = (tmp_path / f"state-{i}" / "privacy").glob("*.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [(x["probability"], x["count"], x["unit"]) for x in lines] == [
            (8 / count, count // 8, "patient")
        ] * 2
        plan = accounts.Plan("poisson", 8 / count, count, 2 * (count // 8), 1e-3)
        assert lines[-1]["epsilon"] == accounts.epsilon(noise, plan)


def site(config, node, **owner):
    return Site(config, **{key.replace("-", "_"): value for key, value in node.items()}, **owner)


def test_a_site_says_its_number_of_patients_and_answers_with_it(configured, sites):
    config = of_examples(configured, **KEYS, dataset="shape:3:2")
    asked = site(config, sites[0])
    assert dict(asked.ask("query.sizes").content["sizes"]) == {"train": 32}
    metrics = asked.metrics("train")
    assert (metrics["num-examples"], metrics["local-steps"]) == (32, 4)
    by_row = of_examples(configured, **{**KEYS, "dp_unit": ""}, dataset="shape:3:2")
    assert dict(asked.ask("query.sizes", by_row).content["sizes"]) == {"train": 64}


def test_noise_has_to_be_enough_for_a_sites_own_patients(configured, sites):
    """What is enough for its 64 rows is not for its 32 patients, of which a batch has a greater share."""
    keys = {**KEYS, "dataset": "shape:3:2", "dp_noise": 0, "dp_epsilon": 4.0, "rounds": 1}
    asked = site(of_examples(configured, **keys), sites[0])
    plans = [accounts.Plan("poisson", 8 / count, count, count // 8, 1e-3) for count in (64, 32)]
    of_rows, of_patients = (accounts.noise_for(4.0, plan) for plan in plans)
    assert of_rows < of_patients
    assert asked.refusal("train", dp_noise=of_rows).startswith("privacy: the noise")
    assert asked.ask("train", dp_noise=of_patients).has_content()
    assert asked.ask("train").has_content()  # without the server's, its own is found


def test_what_protects_examples_says_nothing_of_patients(configured, sites, capsys):
    """The ledger of both has no epsilon, and an owner's budget is spent."""
    config = of_examples(configured, **{**KEYS, "dp_seed": -1, "dataset": "shape:3:2"})
    by_row = of_examples(configured, **{**KEYS, "dp_seed": -1, "dataset": "shape:3:2", "dp_unit": ""})
    asked = site(config, sites[0])
    for one, flower_run in ((config, 1), (by_row, 2)):
        assert asked.ask("train", one, run=f"{RUN[:-1]}{flower_run}", flower_run=flower_run).has_content()
    state = sites[0]["state-dir"]
    assert main(["ledger", state]) == 0
    shown = capsys.readouterr().out
    assert "'patient'" in shown
    (line,) = [line for line in shown.splitlines() if "all runs" in line]
    assert "inf" in line
    owned = site(config, sites[0], dp_max_epsilon=1e6, dp_max_delta=1e-3)
    assert owned.refusal("train", run=RUN, flower_run=3).startswith(
        "dp-max-epsilon: this site's budget of 1e+06"
    )


@pytest.mark.parametrize(("unit", "kind"), [*(("", kind) for kind in KINDS), ("sex", "train")])
def test_an_owner_demands_the_unit(configured, sites, monkeypatch, unit, kind):
    keys = {**KEYS, "dp_seed": -1, "dataset": "shape:3:2"}
    asked = site(of_examples(configured, **keys), sites[0], dp_required_unit="patient")
    assert asked.ask("train").has_content()
    monkeypatch.setattr("fedbn_flower.config.data_request.load_dataset", lambda *_: 1 / 0)
    other = of_examples(configured, **{**keys, "dp_unit": unit})
    line = f"dp-unit: {unit!r} is not allowed at this site; expected 'patient' (dp-required-unit)"
    assert asked.refusal(kind, other) == line
    plain = configured(dataset="shape:3:2", columns=KEYS["columns"], model="linear", client="shared")
    assert asked.refusal(kind, plain).startswith(
        "dp: 'none' is not allowed at this site; expected 'example' or"
    )


def test_who_protects_all_rows_of_a_client_protects_each_patient(configured, sites):
    config = of_examples(
        configured, dp="local", dp_seed=-1, dataset="shape:3:2",
        **{key: KEYS[key] for key in ("columns", "label_column")},
    )  # fmt: skip
    assert site(config, sites[0], dp_required_unit="patient").ask("train").has_content()


# ---- what is refused ------------------------------------------------------------------------------


NOT_CLIENTS = r"^dp-unit: 'patient' is not allowed; expected none, since each client is protected with all of"
NO_TABLE = {
    "dataset": "digits",
    "partition": "iid",
    "columns": "auto",
    "label_column": "auto",
    "dp_scale": "",
}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"dp_unit": "patience"}, r"^dp-unit: unknown name 'patience'.*did you mean 'patient'"),
        ({"dp_unit": "outcome"}, r"^dp-unit: 'outcome' is not allowed; expected another column: this is"),
        (
            {"columns": "age,patient"},
            r"^columns: 'age,patient' is not allowed; expected columns other than 'patient', the dp-unit$",
        ),
        (
            {"dp_metrics": 1.0},
            r"^dp-metrics: 1.0 is not allowed; expected 0 with dp-unit, since metrics are those of single",
        ),
        ({"dp": "client", "dp_scale": ""}, NOT_CLIENTS),
        ({"dp": "local", "dp_scale": ""}, NOT_CLIENTS),
        (NO_TABLE, r"^dp-unit: 'patient' is not allowed; expected none: the data are no table, nor pictures"),
    ],
)
def test_units_that_cannot_be(by_unit, keys, line):
    with pytest.raises(UserError, match=line):
        Federation(by_unit(**keys))


def test_rows_without_a_unit_are_refused_and_a_patient_may_be_called_na(by_unit, tmp_path):
    path = tmp_path / "some.csv"
    rows = [f"{'NA' if i < 4 else f'p{i // 4}'},{i % 3},{i},f,{i % 2}" for i in range(40)]
    path.write_text("patient,site,age,sex,outcome\n" + "\n".join(rows) + "\n")
    assert len(set(inputs_of(by_unit(dataset=str(path))).dataset.train.units)) == 8
    path = tmp_path / "others.csv"
    path.write_text("patient,site,age,sex,outcome\n" + "\n".join([*rows, *[",1,3,f,0"] * 2]) + "\n")
    with pytest.raises(
        UserError, match=r"^dp-unit: 'patient' is missing in 2 rows; expected a value in each$"
    ):
        Federation(by_unit(dataset=str(path)))

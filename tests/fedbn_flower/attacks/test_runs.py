"""Attacks in whole runs: what the server gets, what is recorded, and the same on every runtime."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from fedbn_flower import UserError, simulate
from fedbn_flower.cli import main
from fedbn_flower.config.making import run_config
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.tasks import task_of
from fedbn_flower.server.federation import Federation
from tests.fedbn_flower.refusal import one_line
from tests.quick import some_quick

ALL = (
    "sign-flip:1.5", "gaussian:0.1", "replacement:3", "alie:1", "ipm:0.5", "min-max", "label-flip",
    "random-labels", "backdoor:3", "backdoor:3+replacement:2", "label-flip+min-max",
)  # fmt: skip
DATA = {"dataset": "digits", "num-clients": 5, "partition": "iid"}
KEYS = {"num_clients": 5, "partition": "iid", "model": "mlp-bn", "client": "shared", "attackers": "1,3"}


def model(folder):
    return load_file(Path(folder, "model.safetensors"))


def moved(folder, other):
    """The largest difference of two models."""
    after = model(other)
    return max(float(np.abs(a - after[name]).max(initial=0)) for name, a in model(folder).items())


def rows(folder, name="metrics.csv"):
    with Path(folder, name).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def honest(cache_dir, tmp_path_factory, pictures_never_drawn, draws_always_few):
    """The folder of a run without attack."""
    keys = (
        {"rounds": 2, "local_epochs": 1, "batch_size": 128}
        | KEYS
        | {"attackers": "0.2", "cache_dir": cache_dir, "backend": "inline"}
    )
    folder = tmp_path_factory.mktemp("runs") / "honest"
    return simulate(dataset="digits", **keys, progress=False, run_dir=folder).folder


@pytest.mark.parametrize("attack", some_quick(ALL, {9}))
def test_a_run_says_who_attacked_and_is_not_the_honest_one(run, honest, attack):
    found = run(**KEYS, attack=attack, rounds=2, run_dir="attacked")
    assert moved(honest, "attacked") > 1e-4
    said = found.summary["attack"]
    assert (said["name"], said["attackers"], said["answers"]) == (attack, [1, 3], 4)
    assert [float(row["attackers"]) for row in rows("attacked")] == [2, 2]
    trained = [row for row in rows("attacked", "clients.csv") if row["phase"] == "train"]
    assert {row["partition"] for row in trained if row["attacker"]} == {"1", "3"}
    assert ("success" in said) == ("backdoor" in attack)
    assert found.summary["failures"] == 0
    assert main(["report", "attacked"]) == 0
    page = Path("attacked", "report.html").read_text()
    assert f"<dt>Attack</dt><dd>{attack}</dd>" in page
    assert "<dt>Attackers</dt><dd>1, 3</dd>" in page


def test_a_run_without_attack_has_nothing_of_it(honest):
    assert "attack" not in json.loads((honest / "summary.json").read_text())
    assert not {"attackers", "attack-success"} & rows(honest)[0].keys()
    assert main(["report", str(honest)]) == 0
    assert "<dt>Attack" not in (honest / "report.html").read_text()


@pytest.mark.slow
def test_the_mean_has_the_attackers_updates_scaled_or_turned_against_the_honest_mean(run):
    """Of five equal clients one attacks. FedAvg's first step is the mean u of the five updates; with one of
    them times s it is u + (s - 1) u_1 / 5: the difference is linear in s - 1, whatever u_1 is.

    Under ipm by e, h the honest mean, it is (4 h - e h) / 5: of 4 the model stays, of 2 it goes half as far.
    """
    alone = KEYS | {"attackers": "1", "rounds": 1, "model": "linear", "strategy": "fedavg"}
    run(**alone | {"attackers": "0.2"}, run_dir="honest")
    for attack in ("replacement:4", "sign-flip:2", "ipm:4", "ipm:2"):
        run(**alone, attack=attack, run_dir=attack)  # a folder with a colon in its name
    for name, honest in model("honest").items():
        third = (model("replacement:4")[name] - honest) / 3
        np.testing.assert_allclose(model("sign-flip:2")[name] - honest, -3 * third, atol=2e-6)
        still = model("ipm:4")[name]
        np.testing.assert_allclose(model("ipm:2")[name] - still, (honest - third - still) / 2, atol=2e-6)


def test_examples_of_attackers(cache_dir):
    """By the tasks of clients: labels flipped, drawn, patched; validation and test sets as they are."""

    def task(attack, partition):
        keys = DATA | {"num-clients": 4, "model": "linear", "attack": attack, "val-fraction": 0.2}
        keys |= {"cache-dir": str(cache_dir)} | ({} if attack == "none" else {"attackers": "1"})
        return task_of(inputs_of(run_config(keys)), partition)

    def whole(examples):
        return [part.numpy() for part in examples.prepared(np.arange(len(examples)))]

    x, y = whole(task("none", 1).train)
    assert (whole(task("label-flip", 1).train)[1] == 9 - y).all()
    assert (whole(task("label-flip", 0).train)[1] == whole(task("none", 0).train)[1]).all()
    drawn = whole(task("random-labels", 1).train)[1]
    assert 0.03 < (drawn == y).mean() < 0.2
    assert set(drawn) == set(range(10))
    patched, labels = whole(task("backdoor:3", 1).train)
    marked = (patched != x).any(axis=(1, 2, 3)) | (labels != y)
    assert 0.2 < marked.mean() < 0.42  # 20 of 64
    assert (labels[marked] == 3).all()
    assert (labels[~marked] == y[~marked]).all()
    assert (patched[marked][..., -2:, -2:] == 1).all()
    assert (patched[..., :-2, :] == x[..., :-2, :]).all()
    for split in ("val", "test"):
        attacked, honest = (whole(task(attack, 1).evaluation[split]) for attack in ("backdoor:3", "none"))
        for part, same in zip(attacked, honest, strict=True):
            np.testing.assert_array_equal(part, same)
    tried, goal = whole(task("backdoor:3", 0).evaluation["patched"])
    true = whole(task("none", 0).evaluation["test"])[1]
    assert len(tried) == (true != 3).sum()
    assert (goal == 3).all()
    assert (tried[..., -2:, -2:] == 1).all()


@pytest.mark.slow
def test_a_backdoor_succeeds_and_a_robust_mean_keeps_it_out(run):
    keys = KEYS | {"num_clients": 10, "attackers": "0.2", "attack": "backdoor:3+replacement:5", "rounds": 5}
    open_door = run(**keys).summary["attack"]["success"]
    robust = run(**keys, mean="median").summary["attack"]["success"]
    assert open_door > 0.9
    assert robust < 0.3


def test_the_success_is_that_of_the_saved_model(run, cache_dir):
    """By PyTorch, on digits patched here: of 8 x 8 pixels the last 2 x 2 are white."""
    found = run(**KEYS, attack="backdoor:3+replacement:3", run_dir="run")
    network, test = (
        found.model().eval(),
        inputs_of(run_config({**DATA, "cache-dir": str(cache_dir)})).dataset.test,
    )
    x = torch.tensor(test.columns["x"]).float() / 255
    x[..., -2:, -2:] = 1
    kept = test.columns["y"] != 3
    with torch.no_grad():
        share = (network(x[kept]).argmax(1) == 3).float().mean().item()
    assert found.summary["attack"]["success"] == pytest.approx(share)
    assert float(rows("run")[-1]["attack-success"]) == pytest.approx(share)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["gaussian:0.1", "backdoor:3+replacement:2"])
def test_resumed_runs_have_the_same_attackers(run, attack):
    keys = KEYS | {"attack": attack, "attackers": "0.4", "client": "silobn"}
    keys |= {"fraction_train": 0.8, "dropout": 0.2}
    whole = run(**keys, rounds=3, run_dir="whole")
    run(**keys, rounds=2, run_dir="parts")
    parts = run(resume="parts", rounds=3)
    assert whole.summary["attack"] == parts.summary["attack"]
    for name, entry in model("whole").items():
        np.testing.assert_array_equal(entry, model("parts")[name])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("client", ["fedbn", "silobn", "fedper", "ditto"])
def test_with_what_stays_at_home(run, client):
    """Each honest client tries the patch on its own model; the honest mean leaves attackers out."""
    keys = KEYS | {"client": client, "attack": "backdoor:3+sign-flip:2", "eval_data": "local", "rounds": 1}
    found = run(**keys, run_dir="run")
    assert 0 <= found.summary["attack"]["success"] <= 1
    assert found.summary["failures"] == 0
    clients = found.summary["clients"]
    honest = [clients[i]["accuracy"] for i in ("0", "2", "4")]
    assert float(rows("run")[-1]["honest-client-mean-accuracy"]) == pytest.approx(np.mean(honest))


@pytest.mark.slow
def test_compressed_frozen_tied_and_held_out(run):
    """Omniscient attackers read decoded answers; what is frozen does not move."""
    found = run(**KEYS, attack="ipm:1", compress="topk:0.5", holdout_clients=1, freeze="1", rounds=1)
    assert found.summary["failures"] == 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"attack": "backdoor:10"},
            "attack: 'backdoor:10' is not allowed; expected a class of backdoor from 0 ",
        ),
        (
            {"attack": "label-flip", "attackers": "7"},
            "attackers: '7' is not allowed; expected clients that train",
        ),
        *(
            (keys, f"attack: {keys['attack']!r} is not allowed; expected another one, or more clients: {why}")
            for keys, why in (
                ({"attack": "alie", "num_clients": 2, "attackers": "1"}, "alie needs 2 or more honest"),
                ({"attack": "label-flip+alie:1", "attackers": "0,1,2,3"}, "alie needs 2 or more honest"),
                ({"attack": "min-max", "fraction_train": 0.4}, "min-max needs 2 or more honest"),
                ({"attack": "ipm:1", "fraction_train": 0.2}, "ipm needs 1 or more honest"),
            )
        ),
    ],
)
def test_mistakes_that_the_data_show(run, keys, message):
    with one_line(message):
        run(**KEYS | keys)


@pytest.mark.parametrize(
    ("attack", "attackers", "said"),
    [("alie", "1,2", 1), ("alie", "1,2,3,4,5,6,7,8", 0), ("alie:1", "1,2", 0)],
)
def test_an_alie_whose_z_is_nothing_is_said(configured, attack, attackers, said):
    """Of 10 clients 2 attackers have the z of 4 of 8, which is 0, and 8 have one."""
    federation = Federation(configured(num_clients=10, partition="iid", attack=attack, attackers=attackers))
    lines = [line for line in federation.extensions.notices if "its z is 0" in line]
    assert (
        lines == ["attack 'alie': its z is 0 with 2 attackers of 10, who send the mean; give alie:Z"] * said
    )


def test_numbers_have_no_labels_to_flip_and_tables_no_patch(run):
    rng = np.random.default_rng(0)
    x, numbers, classes = rng.normal(size=(60, 4)), rng.normal(size=(60, 1)), rng.integers(0, 3, 60)
    keys = {"num_clients": 3, "partition": "iid", "attackers": "1", "model": "linear", "client": "shared"}
    with pytest.raises(
        UserError, match="label-flip needs one class for each example, and these have numbers"
    ):
        run(**keys, data=(x, numbers, x, numbers), attack="label-flip")
    with pytest.raises(UserError, match="backdoor needs images, to which it adds a patch"):
        run(**keys, data=(x, classes, x, classes), attack="backdoor:1")
    assert run(**keys, rounds=1, data=(x, numbers, x, numbers), attack="ipm:1").summary["attack"][
        "attackers"
    ] == [1]
    flipped = run(**keys, rounds=1, data=(x, classes, x, classes), attack="label-flip")
    assert flipped.summary["attack"]["answers"] == 1


def test_images_as_fractions_are_patched_with_their_greatest_value(run):
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 3, 8, 8), np.float32), rng.integers(0, 3, 60)
    keys = {"num_clients": 3, "partition": "iid", "attackers": "1", "model": "linear", "client": "shared"}
    assert "success" in run(**keys, rounds=1, data=(x, y, x, y), attack="backdoor:1").summary["attack"]

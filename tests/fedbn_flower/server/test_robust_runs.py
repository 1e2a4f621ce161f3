"""Runs under means of whole answers: clients that are lost, and runs that are resumed."""

from pathlib import Path

import pytest

from fedbn_flower.core.errors import RunFailed
from tests.quick import some_quick

MEANS = ["krum:0", "multi-krum:0,2", "bulyan:0", "geometric-median", "centered-clip:0.2"]
KEYS = {
    "dataset": "digits",
    "num_clients": 8,
    "partition": "iid",
    "client": "silobn",
    "strategy": "fedavgm",
    "model": "mlp-bn",
}


def model(folder):
    return Path(folder, "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("mean", MEANS)
def test_lost_answers_and_resumed(run, mean):
    """Half of the clients train, of whom some do not answer; the centre of the clip is in the checkpoint."""
    keys = KEYS | {"mean": mean, "fraction_train": 0.7, "dropout": 0.2}
    whole = run(**keys, rounds=3, run_dir="whole")
    run(**keys, rounds=2, run_dir="parts")
    parts = run(resume="parts", rounds=3)
    assert whole.summary["clients"] == parts.summary["clients"]
    assert model("whole") == model("parts")


@pytest.mark.parametrize("mean", some_quick(["krum:2", "bulyan:1"], {0}))
def test_a_round_with_too_few_answers_leaves_the_model(run, mean, caplog):
    """Some rounds have the seven answers that both need."""
    run(**KEYS | {"mean": mean, "num_clients": 9, "dropout": 0.4}, rounds=6, run_dir="lost")
    assert f"answers are usable, mean '{mean}' needs 7: the model is unchanged" in caplog.text
    assert "in every round" not in caplog.text


def test_a_run_in_which_no_round_has_enough(run):
    with pytest.raises(RunFailed, match="too few clients answered usefully in every round; the model was n"):
        run(**KEYS | {"mean": "krum:2", "dropout": 0.8}, rounds=1)

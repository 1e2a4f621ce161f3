"""Clients that never train, and are evaluated at the end as new ones."""

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.numpy import load_file
from sklearn import metrics as sk
from torch.nn.functional import cross_entropy

from fedbn_flower import UserError
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.participation import held_out_clients
from fedbn_flower.records.events import Observer
from fedbn_flower.records.summary import Summary
from fedbn_flower.results.checkpoints.checkpoint_folder import CheckpointFolder
from fedbn_flower.results.progress import summary_table
from fedbn_flower.runtime.simulation import make_grid, simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.site.inputs import local_task

from ..records.helpers import rows_of
from .test_adapt_bn import by_hand

HELD = {"num_clients": 8, "partition": "dirichlet:1", "holdout_clients": 3}


def rows(folder, phase):
    found = (row for row in rows_of(folder, "clients.csv") if row["phase"] == phase)
    return {(int(row["round"]), int(row["partition"])): row for row in found}


def test_they_are_drawn_by_the_seed_and_as_many():
    drawn = [held_out_clients(seed, 10, 4) for seed in range(200)]
    assert all(len(some) == 4 and some <= set(range(10)) for some in drawn)
    assert drawn[7] == held_out_clients(7, 10, 4)
    times = np.bincount([partition for some in drawn for partition in some], minlength=10)
    assert times.sum() == 800
    assert times.min() > 50  # 80 on average, with a deviation of 7
    assert held_out_clients(0, 10, 0) == frozenset()


@pytest.mark.slow
@pytest.mark.parametrize("eval_model", ["aggregated", "local"])
@pytest.mark.parametrize("fraction_evaluate", [1.0, 0.0])
def test_they_are_in_no_round_and_are_distinguished(configured, tmp_path, eval_model, fraction_evaluate):
    keys = HELD | {"eval_model": eval_model, "fraction_evaluate": fraction_evaluate}
    config = configured(**keys, client="fedbn")
    told = simulate(Federation(config), tmp_path, None).as_json()
    new = held_out_clients(0, 8, 3)
    asked = {partition for phase in ("train", "evaluate") for _, partition in rows(tmp_path, phase)}
    assert asked == set(range(8)) - new
    assert rows(tmp_path, "new").keys() == {(2, partition) for partition in new}
    assert not new & {int(partition) for partition in told["clients"]}
    assert {int(partition) for partition in told["new-clients"]["clients"]} == new
    checkpoints = CheckpointFolder(tmp_path / "checkpoint")
    assert set(checkpoints.partitions(checkpoints.load())) == set(range(8)) - new
    shares = inputs_of(config).partitions.train
    for partition in new:
        figures, row = told["new-clients"]["clients"][str(partition)], rows(tmp_path, "new")[2, partition]
        assert figures["num-examples"] == len(shares[partition])
        assert figures["accuracy"] == float(row["accuracy"])


def test_their_figures_are_of_statistics_estimated_on_their_own_examples(configured, tmp_path, capsys):
    """Of the saved model with the initial scale and shift of BatchNorm, by formula: what goes into the
    layer has, over all of the client's training examples, this mean and this unbiased variance. Pooled are
    the predictions of all three, each by its own statistics."""
    config = configured(**HELD, client="fedbn", eval_data="local", metrics="accuracy,f1")
    told = simulate(Federation(config), tmp_path, None).as_json()
    x = {name: torch.from_numpy(a).double() for name, a in load_file(tmp_path / "model.safetensors").items()}
    x |= {"2.weight": torch.ones(128), "2.bias": torch.zeros(128)}
    said, truth = [], []
    for partition, figures in told["new-clients"]["clients"].items():
        output, labels = by_hand(x, local_task(config, int(partition), {}))
        assert figures["accuracy"] == pytest.approx(sk.accuracy_score(labels, output.argmax(1)))
        assert figures["loss"] == pytest.approx(cross_entropy(output, labels).item(), rel=1e-4)
        said += output.argmax(1).tolist()
        truth += labels.tolist()
    new, macro = told["new-clients"], sk.f1_score(truth, said, average="macro", labels=range(10))
    accuracy = pytest.approx(sk.accuracy_score(truth, said))
    assert new["mean"]["accuracy"] == new["pooled"]["accuracy"] == accuracy
    assert new["pooled"]["f1"] == pytest.approx(macro, abs=1e-12)
    assert new["pooled"]["f1"] != pytest.approx(new["mean"]["f1"], abs=1e-3)
    Console(width=120).print(summary_table(config, Summary.model_validate(told)))
    lines = capsys.readouterr().out.splitlines()
    shown = {"worst client": told["worst-client"], "new clients, mean over examples": new["mean"]}
    for what, figures in shown.items():
        (line,) = (line for line in lines if f" {what} " in line)
        assert f"{100 * figures['accuracy']:.1f} %" in line


class Counts(Observer):
    def __init__(self):
        self.asked = []

    def on_answer(self, server_round, phase, done, asked):
        self.asked.append((phase, asked))


def test_shares_and_bounds_are_of_those_who_train(configured):
    """Half of 5, and at most two answers: of all 8 it were four."""
    config = configured(**HELD, fraction_train=0.5, rounds=1)
    federation, counts = Federation(config), Counts()
    federation.run(make_grid(federation, None), [counts])
    assert set(counts.asked) == {("train", 2), ("evaluate", 5)}
    configured(**HELD, fraction_train=0.5, min_replies=2)
    with pytest.raises(UserError, match="min-replies: 3 .* 2, .*num-clients less holdout-clients, times"):
        configured(**HELD, fraction_train=0.5, min_replies=3)
    for count in (8, 9):
        expected = f"holdout-clients: {count} is not allowed; expected at most 7: one client at least"
        with pytest.raises(UserError, match=expected):
            configured(**HELD | {"holdout_clients": count})


@pytest.mark.parametrize("pair", ["feddyn", "scaffold"])
def test_all_clients_of_a_rule_are_those_who_train(configured, pair):
    keys = HELD | {"strategy": pair, "objective": pair, "client": "shared"}
    assert Federation(configured(**keys)).strategy.num_clients == 5

"""Whole runs of asynchronous protocols on the real clock, whose answers come in any order."""

import numpy as np
import pytest

from fedbn_flower import UserError
from fedbn_flower.results.checkpoints.checkpoint_folder import CheckpointFolder
from fedbn_flower.runtime import simulation
from fedbn_flower.runtime.grid import InlineGrid, partition_of

from ..records.helpers import rows_but_times as rows


class OutOfOrder(InlineGrid):
    """Answers come one at a time, in a drawn order; it knows who evaluated, and who trained meanwhile."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.rng = np.random.default_rng(7)
        self.evaluated = []

    def pull_messages(self, message_ids):
        key = self.rng.choice(sorted(message_ids))
        return list(self.work([self._pushed.pop(key)], None))

    def send_and_receive(self, messages, *, timeout=None):
        asked = [m for m in messages if m.metadata.message_type == "evaluate"]
        training = {partition_of(message) for message in self._pushed.values()}
        self.evaluated += [({partition_of(message) for message in asked}, training)] if asked else []
        return super().send_and_receive(messages, timeout=timeout)


@pytest.fixture
def out_of_order(monkeypatch):
    """Runs on the real clock in this process; the grids that they had."""
    grids = []

    def grid(*arguments):
        grids.append(OutOfOrder(*arguments))
        return grids[-1]

    monkeypatch.setattr(simulation, "InlineGrid", grid)
    return grids


EIGHT = {"partition": "iid", "num_clients": 8, "client": "shared", "model": "linear", "fast": "off"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"strategy": "fedyogi", "compress": "topk:0.2"},
        {"client": "fedbn", "model": "mlp-bn", "num_clients": 3, "eval_data": "local"},
        {"mean": "median"},
    ],
)
def test_a_buffer_of_all_nodes_has_the_bits_of_the_rounds(finished, tmp_path, out_of_order, keys):
    """In whichever order they answer."""
    job = EIGHT | {"rounds": 3} | keys
    n = job["num_clients"]
    here, there = tmp_path / "rounds", tmp_path / "buffers"
    finished(here, **job, weighting="uniform")
    finished(there, **job, protocol=f"fedbuff:{n}", concurrency=n)
    models = [(folder / "model.safetensors").read_bytes() for folder in (here, there)]
    assert models[0] == models[1]
    found = rows(there, "metrics.csv")
    assert [(row.pop("staleness-mean"), row.pop("staleness-max")) for row in found] == [("0.0", "0")] * 3
    assert found == rows(here, "metrics.csv")
    assert [row | {"staleness": ""} for row in rows(there, "clients.csv")] == [
        row | {"staleness": ""} for row in rows(here, "clients.csv")
    ]


def test_a_run_has_its_rows_and_goes_on_with_nobody_training(finished, tmp_path, out_of_order):
    """Resumed, it asks nodes anew with the checkpoint's model. Who trains is not asked to evaluate."""
    keys = EIGHT | {"protocol": "fedbuff:3", "concurrency": 5, "fraction_evaluate": 1.0, "rounds": 5}
    finished(tmp_path, **keys)
    assert CheckpointFolder(tmp_path / "checkpoint").load().versions == {}
    finished(tmp_path, **keys | {"rounds": 8}, resume=str(tmp_path))
    by_round = {number: {} for number in range(1, 9)}
    for row in rows(tmp_path, "clients.csv"):
        if row["phase"] == "train":
            by_round[int(row["round"])][row["partition"]] = int(row["staleness"])
    assert all(len(answers) == 3 for answers in by_round.values())
    assert all(max(answers.values()) < number for number, answers in by_round.items())
    assert max(max(answers.values()) for answers in by_round.values()) >= 2
    assert all(max(by_round[number].values()) <= number - 6 for number in (6, 7, 8))
    for number, row in enumerate(rows(tmp_path, "metrics.csv"), start=1):
        assert int(row["staleness-max"]) == max(by_round[number].values())
    evaluated = [pair for grid in out_of_order for pair in grid.evaluated]
    assert len(evaluated) == 8
    assert all(asked | training == set(range(8)) for asked, training in evaluated)
    assert all(not asked & training and len(training) < 5 for asked, training in evaluated)


def test_a_simulation_needs_devices(run):
    with pytest.raises(
        UserError, match="devices: 'none' is not allowed; expected 'uniform' or others in a s"
    ):
        run(**EIGHT, protocol="fedbuff:3", concurrency=5)


@pytest.mark.slow
def test_clients_that_are_held_out_do_not_train(finished, tmp_path, out_of_order):
    """Of six clients two are held out, by seed 0: clients 0 and 4."""
    keys = {**EIGHT, "num_clients": 6, "holdout_clients": 2, "protocol": "fedbuff:2", "concurrency": 3}
    finished(tmp_path, **keys, rounds=6)
    trained = {int(row["partition"]) for row in rows(tmp_path, "clients.csv") if row["phase"] == "train"}
    assert trained == {1, 2, 3, 5}

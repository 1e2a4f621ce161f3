"""Whole runs in this process whose clients are selected by their data or their losses."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from clients.modules.batch_norm import estimate_statistics
from fedbn_flower import load_model
from fedbn_flower.clients import load_entries
from fedbn_flower.clients.problems.evaluation import evaluate_splits
from fedbn_flower.core.errors import RunFailed
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.results.report.citations import citations
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.server.selection import SelectionOfRound
from fedbn_flower.site.inputs import local_task

from ..records.helpers import rows_of

POWER = {"num_clients": 6, "partition": "dirichlet:1", "fraction_train": 0.34}
POWER |= {"selection": "power-of-choice:6"}
OWN = """
from fedbn_flower.strategies import Selection

class Largest(Selection):
    def choose(self, candidates, count, rng):
        return candidates.sizes.argsort()[-count:]

class Broken(Selection):
    def choose(self, candidates, count, rng):
        return candidates.nothing
"""


def trained(folder):
    """Who trained, by round."""
    found = {}
    for row in rows_of(folder, "clients.csv"):
        if row["phase"] == "train":
            found.setdefault(int(row["round"]), set()).add(int(row["partition"]))
    return found


@pytest.mark.parametrize("client", ["shared", "fedbn"])
def test_those_train_whose_loss_of_the_model_they_get_is_greatest(configured, tmp_path, client):
    """All six are candidates: two of the greatest training loss train. With FedBN also of their own part, or,
    who has not trained yet, with statistics of their own."""
    config = configured(**POWER, client=client, rounds=1, checkpoint_every=1)
    assert config.weighting == "uniform"
    simulate(Federation(config), tmp_path, None)
    ((_, first),) = trained(tmp_path).items()
    losses = []
    for partition in range(6):
        task = local_task(config, partition, {})
        load_entries(task.model.state_dict(), {**task.initial, **load_file(tmp_path / "model.safetensors")})
        if client == "fedbn":
            estimate_statistics(task.model, task.train, len(task.train), task.seed)
        model = load_model(tmp_path, partition) if partition in first else task.model
        losses.append(evaluate_splits(model, task.evaluation, "train", task.problem)["loss"])
    again = configured(**POWER, client=client, rounds=2, resume=str(tmp_path))
    simulate(Federation(again), tmp_path, None)
    assert trained(tmp_path) == {1: first, 2: set(np.argsort(losses)[-2:].tolist())}
    assert len(first) == 2


def test_the_question_is_paid_for(finished, tmp_path):
    """Of the model, to two that train and six candidates, where a uniform sample has two."""
    keys = POWER | {"client": "shared", "rounds": 1, "fraction_evaluate": 0.0}
    power = finished(tmp_path / "power", **keys)["bytes-sent"]
    assert power == 4 * finished(tmp_path / "uniform", **keys | {"selection": "uniform"})["bytes-sent"]


@pytest.mark.slow
def test_fine_tuning_does_not_change_who_trains(finished, tmp_path):
    """Losses are of the model that clients would get, before any step of theirs."""
    for name, steps in (("none", 0), ("some", 20)):
        finished(tmp_path / name, **POWER, client="shared", rounds=4, fine_tune=steps, client_lr=0.3)
    assert trained(tmp_path / "some") == trained(tmp_path / "none")


def test_one_of_ones_own(configured, finished, tmp_path):
    (tmp_path / "own.py").write_text(OWN)

    def run(name):
        finished(tmp_path / name, **POWER | {"selection": f"{tmp_path / 'own.py'}:{name}"})

    run("Largest")
    largest = {*inputs_of(configured(**POWER)).partitions.train.sizes.argsort()[-2:].tolist()}
    assert trained(tmp_path / "Largest") == {1: largest, 2: largest}
    with pytest.raises(RunFailed, match=r"selection: .*Broken' raised AttributeError"):
        run("Broken")


def test_it_chooses_at_most_as_many_positions_of_candidates_as_are_wanted():
    def selected(*chosen):
        one = SimpleNamespace(choose=lambda candidates, count, rng: chosen)
        rule = SimpleNamespace(node_directory=SimpleNamespace(partition=int))
        return SelectionOfRound("own", one, np.ones(4, int), None, rule)(7, range(4), 2, None, None)

    assert (selected(3, 0), selected(2), selected()) == ([0, 3], [2], [])
    for wrong in ((0, 0), (0, 1, 2), (0, 4), (-1, 0), (0.0, 1.0), (False, True)):
        line = f"'own' chose {[*wrong]} in round 7; expected at most 2 different positions from 0 to 3"
        with pytest.raises(RunFailed, match=re.escape(line)):
            selected(*wrong)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"selection": "by-sizes"}, "selection: unknown name 'by-sizes' (did you mean 'by-size'?)"),
        ({"selection": "power-of-choice"}, "expected power-of-choice:D, with D >= 1 candidates"),
        ({"selection": "uniform:3"}, "selection: 'uniform:3' is not allowed; expected nothing after its"),
        ({"selection": "by-size", "dataset": "shape:1x8x8:10"}, "'uniform' where only SuperNodes have data"),
        (
            {"selection": "by-size", "dp": "client", "dp_noise": 1.0, "dp_delta": 1e-5},
            "selection: 'by-size' is not allowed; expected 'uniform', since who trains would tell",
        ),
    ],
)
def test_mistakes_are_one_line(refusal, keys, line):
    assert line in refusal(**keys)


def test_its_paper_is_cited():
    assert "cho2022power" in citations([{"selection": "power-of-choice:4"}])
    assert "cho2022power" not in citations([{"selection": "by-size"}])

"""Clients that share one model and its examples: it is evaluated once for all of them."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import nn

from clients import FedAvgClient, Memory
from clients.memory import ContextStore
from fedbn_flower.site.evaluation_cache import Evaluations
from fedbn_flower.site.inputs import local_task

from ..records.helpers import rows_but_times

CLIENTS, ROUNDS = 3, 2
SERVER = ROUNDS
SHARED, EACH = ROUNDS + 1 + SERVER, CLIENTS * ROUNDS + SERVER
"""Evaluations; the second client of all evaluates too, to see whether it finds the same."""


class Counted(nn.Module):
    """Leaves a byte in a file for each batch that it is evaluated on."""

    def __init__(self, spec, place):
        super().__init__()
        self.place = place
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(spec.size, 4), nn.BatchNorm1d(4), nn.Linear(4, spec.outputs)
        )

    def forward(self, x):
        if not self.training and len(x) > 2:  # two are tried before a run starts
            with self.place.open("ab", buffering=0) as file:
                file.write(b".")
        return self.layers(x)


class Noisy(Counted):
    """Draws where PyTorch's seeds do not reach."""

    def forward(self, x):
        return super().forward(x) * (1.0 if self.training else np.random.normal())


class OneByOne(FedAvgClient):
    def evaluate(self, parameters, config):
        return super().evaluate(parameters, config)


class OwnTraining(FedAvgClient):
    def fit(self, parameters, config):
        return super().fit(parameters, config)


class OwnShare(FedAvgClient):
    """Is tested on some of the examples: every second, from another one on."""

    def __init__(self, task, memory):
        super().__init__(task, memory)
        test = task.evaluation["test"]
        own = type(test)(test.columns, test.rows[task.seed[1] % 2 :: 2], test.prepare)
        self.task = type(task)(**{**vars(task), "evaluation": {"test": own}})


@pytest.fixture
def counted(run, tmp_path):
    """A run, and how often its model was evaluated."""

    def simulated(kind=Counted, **keys):
        place = tmp_path / "evaluations"
        place.write_bytes(b"")
        settings = {"client": "shared", "partition": "iid", "num_clients": CLIENTS, "rounds": ROUNDS}
        result = run(**settings | {"model": lambda spec: kind(spec, place)} | keys)
        return result, len(place.read_bytes())

    return simulated


def rows(result):
    return [rows_but_times(result.folder, name) for name in ("metrics.csv", "clients.csv")]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"client": OwnTraining},
        {"partition": "dirichlet:1"},
        {"feature_shift": "inverted"},
        {"fraction_train": 0.5, "objective": "scaffold", "strategy": "scaffold"},
    ],
)
def test_once_a_round_with_the_figures_of_one_by_one(counted, keys):
    once, evaluations = counted(**keys)
    assert evaluations == SHARED
    each, evaluations = counted(**keys | {"client": OneByOne})
    assert evaluations == EACH
    assert rows(once) == rows(each)
    assert len({row["accuracy"] for row in rows(once)[0]}) > 1  # every round's are its own


@pytest.fixture
def asked(configured):
    """A client's task, and a message that asks for its evaluation."""
    task = local_task(configured(client="shared"), 0, {})
    arrays = ArrayRecord({name: Array(entry) for name, entry in task.initial.items()})
    return task, RecordDict({"arrays": arrays, "config": ConfigRecord({"eval-splits": "test"})})


def test_a_method_that_an_object_replaces_is_called_every_time(asked):
    task, content = asked
    evaluations, calls = Evaluations(), []
    for _ in range(4):
        client = FedAvgClient(task, Memory(ContextStore()))
        client.held_out_metrics = lambda config: {}
        evaluations.find(client, content, lambda: calls.append(1) or (0.5, 360, {}))
    assert len(calls) == 4


@pytest.mark.slow
def test_both_held_out_sets_are_evaluated_once(counted):
    once, evaluations = counted(val_fraction=0.2)
    assert evaluations == SHARED + 2  # the last round has both, and the server too
    each, _ = counted(val_fraction=0.2, client=OneByOne)
    assert rows(once) == rows(each)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "keys",
    [
        {"client": OwnShare},
        {"eval_data": "local"},
        {"feature_shift": "none+inverted"},
        {"client": "fedbn", "eval_data": "global"},
        {"client": "silobn", "eval_data": "global"},
    ],
)
def test_what_is_a_clients_own_it_evaluates_itself(counted, keys):
    result, evaluations = counted(**keys)
    assert evaluations == EACH - SERVER * (keys.get("client") in ("fedbn", "silobn"))
    last = [row["loss"] for row in rows(result)[1] if row["phase"] == "evaluate"][-CLIENTS:]
    assert len(set(last)) > 1


def test_clients_that_standardise_a_table_by_their_own_rows_evaluate_it_themselves(counted, tmp_path):
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=300), "y": rng.integers(0, 2, 300)}).to_csv(
        tmp_path / "t.csv", index=False
    )
    _, evaluations = counted(dataset=tmp_path / "t.csv", label_column="y")
    assert evaluations == EACH


def test_a_model_that_draws_by_itself_is_evaluated_by_every_client(counted):
    found = []
    for client in ("shared", OneByOne):
        np.random.seed(0)
        result, evaluations = counted(Noisy, client=client)
        assert evaluations == EACH
        found.append(rows(result))
    assert found[0] == found[1]


def test_a_model_that_was_changed_in_place_is_evaluated_anew(asked):
    """Own strategies may send the same record in every round. So it is with another configuration, on other
    objects of examples, and another model."""
    task, content = asked
    arrays, evaluations, calls = content["arrays"], Evaluations(), []

    def find(task=task):
        client = FedAvgClient(task, Memory(ContextStore()))
        return evaluations.find(
            client, content, lambda: calls.append(1) or (float("nan"), 360, {"accuracy": 0.5})
        )

    assert [find()[1:] for _ in range(4)] == [(360, {"accuracy": 0.5, "train-examples": len(task.train)})] * 4
    assert len(calls) == 2  # not a number is the same as not a number
    name = next(iter(arrays))
    arrays[name] = Array(task.initial[name] + 1)
    assert [find() and len(calls) for _ in range(2)] == [3, 3]
    content["config"]["eval-splits"] = "val"
    assert [find() and len(calls) for _ in range(2)] == [4, 4]
    own = replace(task, evaluation=dict(task.evaluation, val=replace(task.evaluation["val"])))
    assert [find(own) and len(calls) for _ in range(2)] == [5, 5]
    assert [find(replace(own, model=deepcopy(task.model))) and len(calls)] == [6]


@pytest.mark.slow
def test_so_it_is_on_ray_by_every_worker(counted, on_the_pool):
    keys = {"num_clients": 12, "backend": "ray", "workers": 2}
    once, evaluations = counted(**keys)
    # The workers evaluate for the server, too, which does so itself the first time.
    assert 2 * ROUNDS <= evaluations <= 2 * (ROUNDS + 1) + SERVER + 1
    inline, _ = counted(num_clients=12, client=OneByOne)
    assert rows(once) == rows(inline)

"""Clients that are evaluated in lockstep against the same clients one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from clients import CLIENTS, FedAvgClient, LocalTraining, Received, examples
from clients.problems import evaluation
from clients.problems.regression import LeastSquares
from fedbn_flower.lockstep.evaluate import evaluate_in_lockstep, reason_not_evaluated

from ...clients.helpers import CONFIG, conv_model, make_client, make_examples, small_model
from ..records.helpers import rows_but_times
from .test_lockstep import cohort
from .test_vmapped import Separable

SIZES = (19, 8, 3, 11)  # held-out examples, in batches of 8: three, a full one, a short one, two
ASKED = CONFIG | {"eval-splits": "test,val", "classes": 3, "held-out-cases": "test"}


@pytest.fixture(autouse=True)
def batches_of_8(monkeypatch):
    monkeypatch.setattr(evaluation, "EVALUATION_BATCH", 8)


def clients_of(cls, make_model=small_model):
    """Clients that have trained once, each with held-out examples of its own."""
    clients = cohort(cls, LocalTraining(1, 8), make_model, [20] * len(SIZES))
    for i, (client, size) in enumerate(zip(clients, SIZES, strict=True)):
        own = {"test": make_examples(size, seed=50 + i), "val": make_examples(12 - size // 2, seed=70 + i)}
        client.task = replace(client.task, evaluation=own, tells_classes=True)
        client.fit(received(client), dict(CONFIG))
        client.memory.commit()
    return clients


def received(client):
    return Received({name: client.task.initial[name] for name in client.shared_names}, {})


def assert_same_results(found, expected):
    for (loss, count, metrics), (other_loss, other_count, others) in zip(found, expected, strict=True):
        assert (count, metrics.keys()) == (other_count, others.keys())
        assert loss == pytest.approx(other_loss, abs=1e-5)
        for name, value in metrics.items():
            if name == "held-out-cases":
                for column, array in value.items():
                    np.testing.assert_allclose(array, others[name][column], atol=1e-5)
            else:
                assert value == pytest.approx(others[name], abs=1e-5), name


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make_model", [small_model, conv_model, Separable])
@pytest.mark.parametrize("client", ["fedbn", "shared", "fedper"])
def test_each_client_finds_what_it_finds_alone(client, make_model):
    """Layers that are stacked, and by vmap; with padding, splits, counts by class and cases."""
    clients = clients_of(CLIENTS[client], make_model)
    given = received(clients[0])
    expected = [one.evaluate(given, dict(ASKED)) for one in clients]
    assert expected[0][2]["class-examples"] != expected[1][2]["class-examples"]
    assert_same_results(evaluate_in_lockstep(clients, given, dict(ASKED)), expected)


def test_who_has_no_statistics_yet_estimates_them_alone():
    clients = clients_of(CLIENTS["fedbn"])
    new = make_client(CLIENTS["fedbn"], model=clients[0].task.model)
    found = evaluate_in_lockstep([clients[0], new, clients[1]], received(new), dict(ASKED))
    assert [one is None for one in found] == [False, True, False]


def test_who_fails_fails_alone():
    clients = clients_of(CLIENTS["shared"])
    clients[1].task.evaluation["test"].columns["x"][5] = np.nan
    found = evaluate_in_lockstep(clients, received(clients[0]), dict(ASKED))
    assert [one is None for one in found] == [False, True, False, False]


class Own(FedAvgClient):
    """Has an ensemble, say."""

    def predictor(self):
        return self.task.model


def on_gpu(clients):
    for one in clients:
        held_out = {name: replace(own, device="cuda") for name, own in one.task.evaluation.items()}
        one.task = replace(one.task, evaluation=held_out)


def with_one_test_set(clients):
    for one in clients:
        one.task = replace(one.task, evaluation=clients[0].task.evaluation)


@pytest.mark.parametrize(
    ("cls", "asked", "change"),
    [
        (CLIENTS["shared"], {"fine-tune": 1}, None),
        (CLIENTS["shared"], {"adapt-bn": True}, None),
        (CLIENTS["shared"], {"own-statistics": False}, None),
        (Own, {}, None),
        (CLIENTS["ditto"], {}, None),
        (CLIENTS["shared"], {}, with_one_test_set),  # one of them does for all
        (CLIENTS["shared"], {}, on_gpu),
    ],
)
def test_where_they_are_evaluated_one_by_one(cls, asked, change, monkeypatch):
    monkeypatch.setattr(examples, "has_room", lambda device, size: False)
    clients = clients_of(cls)
    if change:
        change(clients)
    assert evaluate_in_lockstep(clients, received(clients[0]), ASKED | asked) == [None] * len(clients)


class Centred(nn.Module):
    """Looks at all of its batch."""

    def forward(self, x):
        return x - x.mean(0)


class Hasty(Centred):
    """Says that it does not."""

    lockstep_safe = True


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.ReLU, ""),
        (Centred, ""),  # by vmap, where batches are never padded
        (Hasty, "the trial disagreed"),
        (Noisy, "the trial raised RuntimeError"),
    ],
)
def test_a_trial_finds_who_would_have_other_outputs(layer, reason, monkeypatch):
    monkeypatch.setattr(evaluation, "EVALUATION_BATCH", 1000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), layer())
    found = reason_not_evaluated(make_client(CLIENTS["shared"], model=model).task)
    assert found.partition(":")[0] == reason


def test_problems_that_look_at_the_model_are_evaluated_one_by_one():
    task = replace(make_client(CLIENTS["shared"]).task, problem=LeastSquares(np.zeros(5)))
    assert reason_not_evaluated(task) == "the problem looks at the model itself"


def test_a_run_has_the_same_metrics(run, caplog):
    """On a processor only where all that can be is to be at once."""
    caplog.set_level("INFO", "flwr.fedbn")
    keys = {"client": "fedbn", "partition": "iid", "num_clients": 16, "fraction_train": 0.8, "rounds": 1}
    found, expected = (run(**keys, fast=fast, run_dir=fast) for fast in ("always", "auto"))
    assert caplog.messages.count("clients are evaluated 8 at a time") == 1
    for name in ("metrics.csv", "clients.csv"):
        rows, others = (rows_but_times(result.folder, name) for result in (found, expected))
        assert len(rows) == len(others)
        for row, other in zip(rows, others, strict=True):
            for column, value in row.items():
                if value != other[column]:
                    assert float(value) == pytest.approx(float(other[column]), abs=1e-5), column

"""Training on a GPU against the same training on the CPU; where there is no GPU, that it would run."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from clients import CLIENTS, OBJECTIVES, LocalTraining, Received
from clients.modules.precision import compute_in

from .helpers import CONFIG, batch_statistics, conv_model, make_client, small_model

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
TRAINING = LocalTraining(epochs=2, batch_size=8)


def some_run_here(names, here):
    """The names for ``parametrize``: without a GPU a few show that the test would run."""
    return [pytest.param(name, marks=[] if name in here else needs_gpu) for name in sorted(names)]


def on_device(client, device):
    """The client with its model and examples on a device."""
    task = client.task
    move = partial(replace, device=device)
    held_out = {name: move(examples) for name, examples in task.evaluation.items()}
    moved = replace(task, model=task.model.to(device), train=move(task.train), evaluation=held_out)
    return type(client)(moved, client.memory)


def make(device, name="fedbn", objective="plain", make_model=small_model, precision="fp32", seed=0):
    client = make_client(CLIENTS[name], None, make_model(), seed, TRAINING, objective)
    compute_in(client.task.model, precision, device)
    return on_device(client, device)


def received(client):
    """The initial model, and what the server sends to objectives with a record."""
    small = {name: np.full_like(client.task.initial[name], 0.01) for name in client.trained_names}
    shared = {name: client.task.initial[name] for name in client.shared_names}
    records = ("control", "gradient", "h", "perturbation", "momentum", "second-moment")
    return Received(shared, {**dict.fromkeys(records, small), "batch-statistics": batch_statistics()})


def two_rounds(client):
    """All that it sends and keeps, by name, and its metrics."""
    found = {}
    for server_round in (1, 2):
        config = CONFIG | {"server-round": server_round, "eval-splits": "test,val"}
        update = client.fit(received(client), config)
        client.memory.commit()
        arrays = dict(zip(client.shared_names, update.arrays, strict=True))
        groups = update.records | {g: client.memory.read(g) or {} for g in ("local", client.objective_group)}
        for group, entries in {"sent": arrays, **groups}.items():
            found |= {(server_round, group, name): entry for name, entry in entries.items()}
        found[server_round, "metrics", ""] = [value for _, value in sorted(update.metrics.items())]
    return found


def assert_close(found, expected, atol):
    assert found.keys() == expected.keys()
    for key, entry in expected.items():
        np.testing.assert_allclose(found[key], entry, atol=atol, err_msg=str(key))


@pytest.mark.parametrize("objective", some_run_here(OBJECTIVES, {"fedtan", "scaffold"}))
def test_every_objective_trains_as_on_the_cpu(objective):
    on_gpu, on_cpu = (two_rounds(make(device, objective=objective)) for device in (DEVICE, "cpu"))
    assert_close(on_gpu, on_cpu, atol=1e-3 if objective == "fedproto" else 1e-4)


@pytest.mark.parametrize("client", some_run_here(CLIENTS, {"ditto"}))
def test_every_client_trains_as_on_the_cpu(client):
    assert_close(two_rounds(make(DEVICE, client)), two_rounds(make("cpu", client)), atol=1e-4)


def test_convolutions_in_float32_are_those_of_the_cpu():
    on_gpu, on_cpu = (two_rounds(make(device, make_model=conv_model)) for device in (DEVICE, "cpu"))
    assert_close(on_gpu, on_cpu, atol=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_rounds_and_sends_float32(precision):
    half, whole = (two_rounds(make(DEVICE, "shared", precision=p)) for p in (precision, "fp32"))
    assert {np.asarray(entry).dtype.name for entry in half.values()} <= {"float32", "float64", "int64"}
    assert all(np.isfinite(entry).all() for entry in half.values())
    assert any(not np.array_equal(half[key], entry) for key, entry in whole.items())

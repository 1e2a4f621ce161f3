"""Training on a GPU against the same training on the CPU; where there is no GPU, that it would run."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from clients import CLIENTS, OBJECTIVES, LocalTraining
from clients.modules.precision import compute_in

from .helpers import CONFIG, conv_model, make_client, received, small_model, two_rounds

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
    client = make_client(name, None, make_model(), seed, TRAINING, objective)
    compute_in(client.task.model, precision, device)
    return on_device(client, device)


def rounds_of(client):
    found, metrics = two_rounds(client, 0.01, **{"eval-splits": "test,val"})
    return found | {("metrics", i): [one[name] for name in sorted(one)] for i, one in enumerate(metrics)}


def assert_close(found, expected, atol):
    assert found.keys() == expected.keys()
    for key, entry in expected.items():
        np.testing.assert_allclose(found[key], entry, atol=atol, err_msg=str(key))


@pytest.mark.parametrize("objective", some_run_here(OBJECTIVES, {"fedtan", "scaffold"}))
def test_every_objective_trains_as_on_the_cpu(objective):
    on_gpu, on_cpu = (rounds_of(make(device, objective=objective)) for device in (DEVICE, "cpu"))
    assert_close(on_gpu, on_cpu, atol=1e-3 if objective == "fedproto" else 1e-4)


@pytest.mark.parametrize("client", some_run_here(CLIENTS, {"ditto"}))
def test_every_client_trains_as_on_the_cpu(client):
    assert_close(rounds_of(make(DEVICE, client)), rounds_of(make("cpu", client)), atol=1e-4)


def test_convolutions_in_float32_are_those_of_the_cpu():
    on_gpu, on_cpu = (rounds_of(make(device, make_model=conv_model)) for device in (DEVICE, "cpu"))
    assert_close(on_gpu, on_cpu, atol=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_rounds_and_sends_float32(precision):
    half, whole = (rounds_of(make(DEVICE, "shared", precision=p)) for p in (precision, "fp32"))
    assert {np.asarray(entry).dtype.name for entry in half.values()} <= {"float32", "float64", "int64"}
    assert all(np.isfinite(entry).all() for entry in half.values())
    assert any(not np.array_equal(half[key], entry) for key, entry in whole.items())


NEEDS_VALUES = {"fedlc", "fedntd", "fedrs", "fedtan", "mimelite"}
"""They select or count by values, which meta tensors do not have."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("objective", sorted(OBJECTIVES.keys() - NEEDS_VALUES))
def test_a_step_of_every_objective_stays_on_the_device(objective):
    """On PyTorch's meta device, whose tensors mix with no others."""
    client = make("meta", objective=objective)
    task, prototypes = (
        client.task,
        {"prototypes": np.zeros((3, 5), np.float32), "known": np.ones(3, np.float32)},
    )
    records = received(client).records | {"prototypes": prototypes}
    parameters = dict(task.model.named_parameters())
    run = client.begin_run(parameters, CONFIG, records)
    ((inputs, targets),) = task.train.load([np.arange(8)], training=True)
    loss, output = run.objective.loss(task.model, inputs, targets)
    torch.autograd.backward(loss)
    run.objective.correct_gradients()
    run.training.make_optimizer(parameters.values(), 0.1).step()
    for tensor in (loss, output, *(p.grad for p in parameters.values())):
        assert tensor.device.type == "meta"

"""Steps of a cohort that are replayed: with a graph that computes again, and on a GPU with a real one."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from clients import CLIENTS, LocalTraining, Received
from fedbn_flower.lockstep import fit_in_lockstep, graphs
from fedbn_flower.lockstep.stacked_modules import stacked

from ...clients.helpers import CONFIG, conv_model, make_client
from ...clients.test_gpu import needs_gpu, on_device, received
from .test_lockstep import cohort, small_model

SIZES = (80, 71, 80, 40, 3)  # of batches of 8: full ones, a last one, two clients that end before the others


class Box:
    """Stands for the tensor that a graph writes."""

    def clone(self):
        return self.tensor.clone()


class ComputedAgain:
    """Stands for a CUDA graph: nothing is computed at its capture, and all with each replay."""

    captured = 0

    def __init__(self, compute):
        self.compute = compute
        self.found = Box(), Box()
        ComputedAgain.captured += 1

    def replay(self):
        for box, tensor in zip(self.found, self.compute(), strict=True):
            box.tensor = tensor


@pytest.fixture
def computed_again(monkeypatch):
    def capture(compute, pool):
        graph = ComputedAgain(compute)
        return graph, graph.found

    monkeypatch.setattr(graphs, "_capture", capture)
    monkeypatch.setattr(graphs, "_pool", lambda: None)
    monkeypatch.setattr(ComputedAgain, "captured", 0)


RATES = (0.1, 0.1, 0.05)


def answers(device, training, make_model, repeats, monkeypatch, objective="plain"):
    """What a cohort sends in three rounds, with the metrics. Each begins where the first client was."""
    monkeypatch.setattr(graphs, "may_repeat", lambda model, run: repeats)
    made = cohort(CLIENTS["fedbn"], training, make_model, SIZES, objective)
    clients = [on_device(one, device) for one in made]
    given = received(clients[0])
    found = []
    for server_round, rate in enumerate(RATES, 1):
        config = CONFIG | {"server-round": server_round, "client-lr": rate, "mu": 0.1}
        updates = fit_in_lockstep(clients, given, config)
        for one, update in zip(clients, updates, strict=True):
            found += [*map(np.array, update.arrays), np.array(sorted(update.metrics.items()), dtype=object)]
            one.memory.commit()
        sent = dict(zip(clients[0].shared_names, map(np.array, updates[0].arrays), strict=True))
        given = Received(sent, given.records)
    return found


def assert_equal(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


MANY = {"momentum": 0.9, "clip_norm": 0.1, "weight_decay": 0.1}
CASES = [
    (small_model, {}, "plain", 4),  # two shapes, captured again for another rate
    (conv_model, {}, "plain", 4),
    (small_model, {"agc": 0.1, "weight_decay": 0.1}, "plain", 4),
    (small_model, MANY, "plain", 6),  # buffers are those of a call
    (small_model, {}, "fedprox", 6),  # so is the model that it pulls to
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("make_model", "options", "objective", "captured"), CASES)
def test_what_is_replayed_are_the_steps(
    make_model, options, objective, captured, monkeypatch, computed_again
):
    training = LocalTraining(epochs=2, batch_size=8, **options)
    found = answers("cpu", training, make_model, True, monkeypatch, objective)
    assert ComputedAgain.captured == captured
    assert_equal(found, answers("cpu", training, make_model, False, monkeypatch, objective))


def test_only_what_does_the_same_in_each_step_is_repeated(monkeypatch):
    class Own(nn.Identity):
        """A user's, which may count its calls."""

    Own.__module__ = "of_a_user"
    client = make_client(CLIENTS["shared"])
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG, {})
    on_gpu = replace(run, examples=replace(run.examples, device="cuda"))
    with_adam = replace(on_gpu, training=LocalTraining(optimizer="adam"))
    model = client.task.model
    assert graphs.may_repeat(model, on_gpu)
    assert not graphs.may_repeat(model, run)
    assert not graphs.may_repeat(model, with_adam)
    assert not graphs.may_repeat(nn.Sequential(Own(), model), on_gpu)
    with torch.autograd.set_detect_anomaly(True):
        assert not graphs.may_repeat(model, on_gpu)


def test_graphs_end_with_their_cohort(monkeypatch):
    monkeypatch.setattr(graphs, "may_repeat", lambda model, run: True)
    monkeypatch.setattr(graphs, "_LASTING", lasting := type(graphs._LASTING)())
    client = make_client(CLIENTS["shared"])
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG, {})
    model = stacked(client.task.model, 2)
    found = graphs.graphs_of(model, run, ["1.weight"])
    assert graphs.graphs_of(model, run, ["1.weight"]) is found
    assert graphs.graphs_of(model, run, ["1.bias"]) is not found
    assert len(lasting) == 1
    del model
    stacked.cache_clear()
    gc.collect()
    assert not lasting


def test_where_a_capture_fails_the_steps_are_taken(monkeypatch, caplog):
    def fails(compute, pool):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graphs, "_capture", fails)
    monkeypatch.setattr(graphs, "_pool", lambda: None)
    training = LocalTraining(epochs=2, batch_size=8)
    caplog.set_level("INFO", "flwr.fedbn")
    found = answers("cpu", training, small_model, True, monkeypatch)
    assert "not permitted" in caplog.text
    assert_equal(found, answers("cpu", training, small_model, False, monkeypatch))


@needs_gpu
@pytest.mark.parametrize(("make_model", "options", "objective", "captured"), CASES)
def test_on_a_gpu_they_have_the_bits_of_the_steps(make_model, options, objective, captured, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    training = LocalTraining(epochs=2, batch_size=8, **options)
    found = answers("cuda", training, make_model, True, monkeypatch, objective)
    assert_equal(found, answers("cuda", training, make_model, False, monkeypatch, objective))

"""Steps that are replayed: with a graph that computes again, and on a GPU with a real one."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from clients import CLIENTS, LocalTraining, Received
from fedbn_flower.clients import graphs
from fedbn_flower.lockstep import fit_in_lockstep

from ...clients.helpers import CONFIG, conv_model, make_client, small_model
from ...clients.networks import dropping
from ...clients.test_gpu import needs_gpu, on_device, received
from .test_lockstep import cohort
from .test_vmapped import Separable

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


def one_by_one(clients, given, config):
    return [one.fit(given, config) for one in clients]


def answers(fit, device, training, make_model, repeats, monkeypatch, objective="plain"):
    """What clients send in three rounds, with the metrics. Each begins where the first client was."""
    monkeypatch.setattr(graphs, "may_repeat", lambda model, run: repeats)
    made = cohort(CLIENTS["fedbn"], training, make_model, SIZES, objective)
    clients = [on_device(one, device) for one in made]
    given = received(clients[0])
    found = []
    for server_round, rate in enumerate(RATES, 1):
        config = CONFIG | {"server-round": server_round, "client-lr": rate, "mu": 0.1}
        updates = fit(clients, given, config)
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
    (one_by_one, small_model, {}, "plain", 2),  # full batches, and again for another rate; last ones are few
    (one_by_one, conv_model, {"agc": 0.1}, "plain", 2),
    (one_by_one, small_model, MANY, "plain", 12),  # buffers are a call's: of the four with six full batches
    (one_by_one, conv_model, {}, "fedprox", 12),  # so is the model that it pulls to
    (fit_in_lockstep, small_model, {}, "plain", 4),  # two shapes
    (fit_in_lockstep, conv_model, {}, "plain", 4),
    (fit_in_lockstep, Separable, {}, "plain", 4),  # by vmap, where padded steps look at the sizes
    (fit_in_lockstep, small_model, {"agc": 0.1, "weight_decay": 0.1}, "plain", 4),
    (fit_in_lockstep, small_model, MANY, "plain", 6),
    (fit_in_lockstep, small_model, {}, "fedprox", 6),
]  # fmt: skip
GIVEN = ("fit", "make_model", "options", "objective", "captured")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(GIVEN, CASES)
def test_what_is_replayed_are_the_steps(
    fit, make_model, options, objective, captured, monkeypatch, computed_again
):
    training = LocalTraining(epochs=2, batch_size=8, **options)
    case = fit, "cpu", training, make_model
    found = answers(*case, True, monkeypatch, objective)
    assert ComputedAgain.captured == captured
    assert_equal(found, answers(*case, False, monkeypatch, objective))


def test_steps_that_draw_are_not_replayed(monkeypatch, computed_again):
    """Those of clients side by side would draw from one generator."""
    case = one_by_one, "cpu", LocalTraining(epochs=2, batch_size=8), dropping
    found = answers(*case, True, monkeypatch)
    assert ComputedAgain.captured == 0
    assert_equal(found, answers(*case, False, monkeypatch))


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


def with_a_hook(model):
    model[0].register_forward_hook(lambda module, inputs, output: None)


def with_a_forward_of_its_own(model):
    model.forward = lambda inputs: nn.Sequential.forward(model, inputs)


def with_a_parameters_hook(model):
    model[1].weight.register_hook(lambda gradient: None)


def with_the_mean_of_all_batches(model):
    """Which asks the GPU for their number."""
    model[2].momentum = None


@pytest.mark.parametrize(
    "change", [with_a_hook, with_a_forward_of_its_own, with_a_parameters_hook, with_the_mean_of_all_batches]
)
def test_a_model_that_may_do_other_things_in_each_step_is_not_repeated(change):
    model = small_model()
    client = make_client(CLIENTS["shared"], model=model)
    run = client.begin_run(dict(model.named_parameters()), CONFIG, {})
    on_gpu = replace(run, examples=replace(run.examples, device="cuda"))
    assert graphs.may_repeat(model, on_gpu)
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: None)
    try:
        assert not graphs.may_repeat(model, on_gpu)
    finally:
        handle.remove()
    change(model)
    assert not graphs.may_repeat(model, on_gpu)


def test_an_objective_that_counts_and_fast_off_are_not_repeated():
    model = small_model()
    for name, training in (("fedsat", LocalTraining()), ("plain", LocalTraining(replays=False))):
        client = make_client(CLIENTS["shared"], model=model, objective=name, training=training)
        run = client.begin_run(dict(model.named_parameters()), CONFIG, {})
        on_gpu = replace(run, examples=replace(run.examples, device="cuda"))
        assert not graphs.may_repeat(model, on_gpu)


def test_graphs_end_with_their_model(monkeypatch):
    monkeypatch.setattr(graphs, "may_repeat", lambda model, run: True)
    monkeypatch.setattr(graphs, "_LASTING", lasting := type(graphs._LASTING)())
    client = make_client(CLIENTS["shared"])
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG, {})
    model = small_model().train()
    found = graphs.graphs_of(model, run)
    assert graphs.graphs_of(model, run) is found
    assert graphs.graphs_of(model.eval(), run) is not found
    found = graphs.graphs_of(model, run)
    model[2].momentum = 0.0  # statistics that stay, as a client's class may have it for a while
    assert graphs.graphs_of(model, run) is not found
    model[1].weight.requires_grad_(False)
    found = graphs.graphs_of(model, run)
    model[1].weight.requires_grad_(True)
    assert graphs.graphs_of(model, run) is not found
    assert len(lasting) == 1
    del model
    gc.collect()
    assert not lasting


def test_where_a_capture_fails_the_steps_are_taken(monkeypatch, caplog):
    def fails(compute, pool):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graphs, "_capture", fails)
    monkeypatch.setattr(graphs, "_pool", lambda: None)
    case = one_by_one, "cpu", LocalTraining(epochs=2, batch_size=8), small_model
    caplog.set_level("INFO", "flwr.fedbn")
    found = answers(*case, True, monkeypatch)
    assert "not permitted" in caplog.text
    assert_equal(found, answers(*case, False, monkeypatch))


@needs_gpu
@pytest.mark.parametrize(GIVEN, CASES)
def test_on_a_gpu_they_have_the_bits_of_the_steps(fit, make_model, options, objective, captured, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    case = fit, "cuda", LocalTraining(epochs=2, batch_size=8, **options), make_model
    found = answers(*case, True, monkeypatch, objective)
    assert_equal(found, answers(*case, False, monkeypatch, objective))

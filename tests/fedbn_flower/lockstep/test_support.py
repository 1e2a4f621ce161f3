"""Which models train in lockstep: those of known parts that pass a trial. Everything else trains alone."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from clients import CLIENTS, OBJECTIVES, FedAvgClient, LocalTraining, NextCharacter, Objective, Segmentation
from fedbn_flower.lockstep import equivalence, reason_not_equivalent, reason_not_supported, reason_of_batches

from ...clients.helpers import conv_model, make_client, make_examples, small_model
from ...clients.networks import CHANGES, MIDDLES, SERVED, TRIED, UNKNOWN, Double, Looks, Tokens, network
from .test_lockstep import ELEMENTWISE, assert_same, cohort, rounds


def why_not(make_model, cls=FedAvgClient, objective="plain", values=None):
    client = make_client(cls, model=make_model(), objective=objective)
    return reason_not_supported(cls, client.task) or reason_not_equivalent(cls, client.task, values or {})


def unknown(model, device="cpu"):
    task = make_client(FedAvgClient, model=model).task
    return reason_not_supported(FedAvgClient, replace(task, train=replace(task.train, device=device)))


@pytest.mark.slow
@pytest.mark.parametrize("name", UNKNOWN)
def test_models_that_are_not_known_train_alone(name):
    assert unknown(UNKNOWN[name]())


@pytest.mark.parametrize("name", TRIED)
def test_models_that_fail_the_trial_train_alone(name):
    model = TRIED[name]()
    assert not unknown(model)
    assert "the trial" in reason_not_equivalent(FedAvgClient, make_client(FedAvgClient, model=model).task, {})


@pytest.mark.slow
def test_on_a_gpu_the_trial_tells_rounding_from_a_difference(monkeypatch):
    """Twelve times BatchNorm: in float32 rounding grows beyond the tolerance, in float64 both ways agree.

    A network that is not equivalent disagrees in either.
    """
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16))]
    deep = nn.Sequential(nn.Flatten(), nn.Linear(4, 16), *layers, nn.Linear(16, 3))
    assert why_not(lambda: deep).startswith("the trial disagreed")
    monkeypatch.setattr(equivalence, "_in_float64", lambda task: True)
    assert why_not(lambda: deep) == ""
    assert why_not(TRIED["says it is safe"]).startswith("the trial ")


def test_a_hook_on_every_module():
    handle = nn.modules.module.register_module_forward_hook(lambda *a: None)
    try:
        assert "hooks on every module" in why_not(small_model)
    finally:
        handle.remove()


def test_examples_that_are_augmented_or_hold_several_predictions_train_alone():
    task = make_client(FedAvgClient, model=small_model()).task
    augmented = replace(task, train=replace(task.train, augment=lambda inputs: inputs))
    assert reason_not_supported(FedAvgClient, augmented) == "examples are augmented"
    for problem in (NextCharacter(), Segmentation()):
        several = replace(task, problem=problem)
        assert reason_not_supported(FedAvgClient, several) == "an example has several predictions"


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [
        ("adamw:betas=0.9/0.99", ""),
        ("rprop", "optimiser rprop cannot step on stacked parameters"),
        ("adafactor:d=2", "optimiser adafactor:d=2 cannot step on stacked parameters"),
    ],
)
def test_optimisers_that_cannot_step_on_stacked_parameters_train_alone(optimizer, reason):
    task = make_client(FedAvgClient, training=LocalTraining(optimizer=optimizer)).task
    assert reason_not_supported(FedAvgClient, task) == reason


def test_convolutions_gain_only_on_a_gpu():
    reasons = [unknown(conv_model(), device) for device in ("cpu", "cuda")]
    assert reasons == ["convolutions gain nothing on a CPU", ""]


@settings(max_examples=20)
@given(
    middle=st.lists(st.sampled_from(MIDDLES), max_size=3),
    served=st.lists(st.sampled_from(MIDDLES[:8]), max_size=3),
    changes=st.lists(st.sampled_from(CHANGES), max_size=2),
    wrapped=st.sampled_from([nn.Identity, nn.Identity, Double, Tokens]),
    objective=st.sampled_from(ELEMENTWISE),
    client=st.sampled_from(sorted(CLIENTS)),
)
def test_lockstep_equals_alone_or_is_not_used(middle, served, changes, wrapped, objective, client):
    parts = [make() for make in (middle if changes else served)]
    model = network(*parts)
    for change in changes:
        change(model)
    model = model if wrapped is nn.Identity else wrapped(model)
    if why_not(lambda: model, CLIENTS[client], objective):
        return
    made = [copy.deepcopy(model) for _ in range(2)]
    training = LocalTraining(2, 8, momentum=0.5, weight_decay=0.01, clip_norm=5.0)
    runs = [
        rounds(
            cohort(CLIENTS[client], training, lambda own=own: own, (17, 9, 8, 5), objective),
            {"alpha": 0.1, "mu": 0.5},
            lockstep,
        )
        for own, lockstep in zip(made, (True, False), strict=True)
    ]
    assert_same(*runs, atol=1e-4)


def test_the_trial_leaves_everything_as_it_was():
    client = make_client(CLIENTS["fedbn"], objective="feddyn")
    model = client.task.model.eval()
    before = {n: e.clone() for n, e in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    assert reason_not_equivalent(CLIENTS["fedbn"], client.task, {"alpha": 0.1}) == ""
    assert torch.equal(torch.rand(2), expected)
    assert not model.training
    assert all(torch.equal(entry, before[n]) for n, entry in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


class Norm(Objective):
    """Pulls to zero with a force of one: mixes entries. Says that it does not."""

    elementwise = True

    def correct_gradients(self):
        length = torch.stack([w.norm() for _, w, _ in self.gradients()]).norm()
        for _, w, gradient in self.gradients():
            gradient.add_(w / length)


class Silent(OBJECTIVES["fedprox"]):
    def loss(self, model, images, labels, reduction="mean"):
        return super().loss(model, images, labels.flip(0), reduction)


def test_an_objective_says_of_itself_that_it_is_elementwise(monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "norm", Norm)
    monkeypatch.setitem(OBJECTIVES, "silent", Silent)
    monkeypatch.setitem(OBJECTIVES, "base", Objective)
    assert why_not(small_model, objective="silent") == "objective Silent does not set `elementwise`"
    assert why_not(small_model, objective="base") == "objective Objective does not set `elementwise`"
    assert "the trial disagreed" in why_not(small_model, objective="norm")


def test_the_trial_of_a_model_that_draws_leaves_torchs_generator_alone():
    client = make_client(FedAvgClient, model=TRIED["functional dropout"]())
    before = torch.get_rng_state()
    assert reason_not_equivalent(FedAvgClient, client.task, {})
    assert torch.equal(torch.get_rng_state(), before)


def test_rounding_alone_is_far_below_the_trials_tolerance(monkeypatch):
    """BatchNorm amplifies it: with batches of 4 it came to 1.4e-5 to 8.1e-5 here, and of 8 to 9e-6."""
    monkeypatch.setattr(equivalence, "TOLERANCE", equivalence.TOLERANCE / 5)
    for seed in range(3):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(784, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10)
        )
        task = make_client(FedAvgClient, model=model).task
        task = replace(task, train=make_examples(22, seed, classes=10, shape=(1, 28, 28)))
        assert reason_not_equivalent(FedAvgClient, task, {}) == ""


@pytest.mark.parametrize("method", ["fit", "begin_run", "end_run", "load", "get_parameters"])
def test_a_client_with_training_of_its_own_trains_alone(method):
    def own(self, *arguments):
        return getattr(FedAvgClient, method)(self, *arguments)

    assert why_not(small_model, type("Own", (FedAvgClient,), {method: own})) == (
        f"client Own overrides {method}"
    )


def test_a_client_that_decides_what_stays_at_home_is_served():
    class FedPer(FedAvgClient):
        @staticmethod
        def local_entries(model):
            return frozenset({"4.weight", "4.bias"})

        def evaluate(self, parameters, config):
            return super().evaluate(parameters, config)

    assert why_not(small_model, FedPer) == ""


def of_batches(model, sizes=(64, 69), batch_size=32, cohort=8):
    client = make_client(FedAvgClient, model=model, training=LocalTraining(batch_size=batch_size))
    task = client.task
    assert reason_not_supported(FedAvgClient, task) == reason_not_equivalent(FedAvgClient, task, {}) == ""
    return reason_of_batches(FedAvgClient, task, {}, np.array(sizes), cohort)


@pytest.mark.parametrize(
    ("bound", "caught"),
    [
        (2, ""),  # never less
        (30, "5 of them give another output than among 256"),  # a last batch of 5
        (33, "5 of them"),  # every batch
        (256, "5 of them"),  # eight batches together are not less
        (257, ""),  # always less
    ],
)
def test_a_forward_that_looks_at_the_number_of_examples_is_caught_by_the_runs_batches(bound, caught):
    """Batches of 32 and 5, stacked 256: the small trial has at most 16 rows, so none of these showed there.

    What is less than the bound alone and not when stacked, or never or always: these are one function.
    """
    reason = of_batches(network(Looks(bound)))
    assert caught in reason if caught else reason == ""


def test_one_that_looks_in_training_only_is_caught_by_a_step():
    reason = of_batches(network(nn.BatchNorm1d(4), Looks(100, only_training=True)))
    assert reason.startswith("a class says that it treats each example alone, but a trial of 8 times 32")
    assert "disagreed on" in reason


@pytest.mark.parametrize(
    ("sizes", "batch_size", "expected"),
    [
        ((64, 69), 32, (5, 32)),
        ((65,), 32, (32, 32)),  # the last example joins the batch before, of 33
        ((40, 7), 0, (7, 40)),
        ((3,), 8, (3, 3)),
        ((1, 2), 1, (1, 1)),
    ],
)
def test_the_batches_that_occur(sizes, batch_size, expected):
    lengths = [len(batch) for n in sizes for batch in make_examples(n, 0).batches(batch_size)]
    assert expected[0] == min(lengths)
    assert equivalence._batch_sizes(np.array(sizes), batch_size) == expected


@pytest.mark.parametrize("name", SERVED)
def test_models_of_known_parts_pass_it(name):
    assert of_batches(SERVED[name](), sizes=(40, 43)) == ""

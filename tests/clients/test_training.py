"""The local training loop: what is clipped, reported, drawn and evaluated; its steps are in formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from clients import Classification, LocalTraining, NextCharacter, Received
from clients.objectives import Objective
from clients.problems.evaluation import evaluate_splits
from clients.training import LocalRun, train_model

from .helpers import CONFIG, make_client, make_examples


def linear_model():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    with torch.no_grad():
        model[1].weight.copy_(torch.linspace(-1, 1, 12).view(3, 4))
        model[1].bias.zero_()
    return model


def test_what_is_clipped_is_the_whole_gradient_corrections_included():
    """One step of rate 1 with c = 5 everywhere: a move of the bound's length, over all parameters."""
    training = LocalTraining(1, 0, clip_norm=0.05)
    client = make_client("shared", model=linear_model(), training=training, objective="scaffold")
    start = client.get_parameters({})
    control = {n: np.full_like(client.task.initial[n], 5) for n in client.trained_names}
    sent, *_ = client.fit(Received(start.by_name(), {"control": control}), CONFIG | {"client-lr": 1.0})
    moved = np.concatenate([(after - before).ravel() for after, before in zip(sent, start, strict=True)])
    assert np.linalg.norm(moved) == pytest.approx(0.05, rel=1e-3)


def test_figures_of_training_are_means_over_the_examples_of_the_last_epoch():
    """At a rate of next to nothing they are the start's own: 40 examples in batches of 16, 16 and 8."""
    client = make_client("shared", model=linear_model(), training=LocalTraining(2, 16))
    metrics = client.fit(client.get_parameters({}), CONFIG | {"client-lr": 1e-12})[2]
    start = evaluate_splits(linear_model(), {"train": client.task.train}, "train", Classification())
    assert metrics["train-loss"] == pytest.approx(start["loss"], rel=1e-5)
    assert metrics["train-accuracy"] == start["accuracy"]
    assert metrics["local-steps"] == 6


SIZES = [(10, 4, [4, 4, 2]), (9, 4, [4, 5]), (4, 4, [4]), (1, 4, [1]), (5, 0, [5]), (3, 1, [1] * 3)]


def test_the_sizes_of_batches():
    for count, size, sizes in SIZES:
        assert [len(b) for b in make_examples(count).batches(size)] == sizes


def test_everything_random_derives_from_seed_partition_and_round():
    def trained(seed, server_round):
        client = make_client("shared", model=nn.Sequential(nn.Flatten(), nn.Dropout(), linear_model()[1]))
        client.task.__dict__["seed"] = (seed, 0)
        torch.manual_seed(np.random.randint(1000))  # whatever the process did before
        return client.fit(client.get_parameters({}), CONFIG | {"server-round": server_round})[0][0]

    np.testing.assert_array_equal(trained(0, 1), trained(0, 1))
    assert not np.array_equal(trained(0, 1), trained(0, 2))
    assert not np.array_equal(trained(0, 1), trained(1, 1))


def test_training_leaves_torchs_global_generator_alone():
    model = linear_model()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    train_model(model, LocalRun(make_examples(), LocalTraining(), Objective({}, {}), 0.1, (0,)))
    assert torch.equal(torch.rand(2), expected)


@given(count=st.integers(1, 60), size=st.integers(0, 20))
def test_an_epoch_visits_every_example_once_and_leaves_no_batch_of_one(count, size):
    batches = list(make_examples(count).batches(size, np.random.default_rng(0)))
    assert sorted(np.concatenate(batches)) == list(range(count))
    if size != 1 and count > 1:
        assert min(len(b) for b in batches) > 1
    if size == 0:
        assert len(batches) == 1


def test_what_a_problem_derives_is_reported_training_too():
    """A summed loss of 6 and 2 hits over 4 characters."""
    run = LocalRun(make_examples(), LocalTraining(), Objective({}, {}, problem=NextCharacter()), 0.1, (0,))
    assert run.metrics(3, {"loss": 6.0, "accuracy": 2.0}, 4) == pytest.approx(
        {"train-loss": 1.5, "train-accuracy": 0.5, "train-perplexity": np.exp(1.5), "local-steps": 3}
    )


def test_fit_and_evaluate_report_the_splits_requested():
    client = make_client("shared")
    parameters, count, metrics = client.fit(client.get_parameters({}), CONFIG | {"eval-splits": "val,test"})
    assert count == 40
    assert metrics.keys() == {
        "train-loss", "train-accuracy", "local-steps", "loss", "accuracy", "eval-examples",
        "test-loss", "test-accuracy", "test-examples",
    }  # fmt: skip
    loss, count, evaluated = client.evaluate(parameters, CONFIG | {"eval-splits": "val,test"})
    assert (loss, count) == (metrics["loss"], 20)
    assert evaluated["test-accuracy"] == metrics["test-accuracy"]
    assert evaluated["train-examples"] == 40
    for found in (metrics, evaluated):
        assert (found["eval-examples"], found["test-examples"]) == (20, 30)

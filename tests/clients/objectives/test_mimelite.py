"""MimeLite's gradient of all examples at x, in evaluation mode."""

import numpy as np
import torch
from torch.nn import functional

from clients import OBJECTIVES, FedAvgClient, LocalTraining, Received

from ..helpers import CONFIG, make_client


def test_it_is_that_of_all_examples_in_evaluation_mode():
    """BatchNorm goes by its running statistics, which the pass leaves alone."""
    client = make_client(FedAvgClient, objective="mimelite", training=LocalTraining(1, 8))
    model = client.task.model
    with torch.no_grad():
        model[2].running_mean.add_(0.3)
        model[2].running_var.mul_(2)
    before = {name: entry.clone() for name, entry in model.state_dict().items()}
    zeros = {n: np.zeros_like(client.task.initial[n]) for n in client.trained_names}
    received = Received({n: e.numpy().copy() for n, e in before.items()}, {"momentum": zeros})
    settings = CONFIG | {
        "mime-optimizer": "momentum",
        "mime-beta-1": 0.5,
        "mime-beta-2": 0.5,
        "mime-tau": 1.0,
    }
    state = torch.get_rng_state()
    run = client.begin_run(dict(model.named_parameters()), settings, received.records)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(entry, before[name]) for name, entry in model.state_dict().items())
    inputs, targets = client.task.train.prepared(np.arange(len(client.task.train)))
    model.eval()
    loss = functional.cross_entropy(model(inputs), targets)
    expected = torch.autograd.grad(loss, [dict(model.named_parameters())[n] for n in client.trained_names])
    for name, gradient in zip(client.trained_names, expected, strict=True):
        np.testing.assert_allclose(run.objective.at_start[name], gradient, atol=1e-6)
    update = client.fit(received, settings)
    for name, gradient in zip(client.trained_names, expected, strict=True):
        np.testing.assert_allclose(update.records["gradient"][name], gradient, atol=1e-6)


def test_it_trains_one_by_one():
    assert not OBJECTIVES["mimelite"].elementwise
    assert not OBJECTIVES["mimelite"].example_wise

"""Mime's corrected gradient, on what PyTorch finds by itself."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from clients import FedAvgClient, LocalTraining, Received

from ..helpers import CONFIG, make_client

RATE, B1 = 0.1, 0.9


def asked(client, **settings):
    """The client's shared entries, c and m as sent, and its configuration."""
    entries = {n: e.numpy().copy() for n, e in client.task.model.state_dict().items()}
    rng = np.random.default_rng(3)
    c, m = (
        {n: rng.normal(size=entries[n].shape).astype(np.float32) for n in client.trained_names} for _ in "cm"
    )
    return entries, c, m, CONFIG | {"client-lr": RATE} | settings


def test_the_first_step_is_the_servers_own():
    """At w = x a batch's gradients cancel: with BatchNorm, which moves by one batch, and with dropout."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    client = make_client(FedAvgClient, model=model, objective="mime", training=LocalTraining(1, 0))
    entries, c, m, config = asked(client)
    update = client.fit(Received(entries, {"momentum": m, "gradient": c}), config)
    got, plain = update.arrays.by_name(), make_client(FedAvgClient, model=copy.deepcopy(model))
    for name in client.trained_names:
        expected = entries[name] - RATE * (B1 * m[name] + (1 - B1) * c[name])
        np.testing.assert_allclose(got[name], expected, atol=1e-6, err_msg=name)
    inputs, _ = plain.task.train.prepared(np.arange(len(plain.task.train)))
    mean = functional.linear(inputs.flatten(1), *map(torch.tensor, (entries["1.weight"], entries["1.bias"])))
    np.testing.assert_allclose(got["2.running_mean"], 0.1 * mean.mean(0), atol=1e-6)
    assert got["2.num_batches_tracked"] == 1
    assert not update.records


def test_further_steps_have_the_difference_of_a_batchs_gradients():
    client = make_client(
        FedAvgClient,
        model=nn.Sequential(nn.Flatten(), nn.Linear(4, 3)),
        objective="mime",
        training=LocalTraining(3, 0),
    )
    entries, c, m, config = asked(client)
    inputs, targets = client.task.train.prepared(np.arange(len(client.task.train)))

    def gradient(w, b):
        parts = [torch.tensor(a, requires_grad=True) for a in (w, b)]
        loss = functional.cross_entropy(functional.linear(inputs.flatten(1), *parts), targets)
        return [g.numpy() for g in torch.autograd.grad(loss, parts)]

    names = ["1.weight", "1.bias"]
    x = [entries[n] for n in names]
    at_x, w = gradient(*x), list(x)
    for _ in range(3):
        found = zip(names, w, gradient(*w), at_x, strict=True)
        w = [v - RATE * (B1 * m[n] + (1 - B1) * (g - g_x + c[n])) for n, v, g, g_x in found]
    update = client.fit(Received(entries, {"momentum": m, "gradient": c}), config)
    for name, expected in zip(names, w, strict=True):
        np.testing.assert_allclose(update.arrays.by_name()[name], expected, atol=1e-6)


def test_what_it_answers_first_is_the_gradient_of_all_examples():
    client = make_client(FedAvgClient, objective="mime")
    entries, _, m, config = asked(client)
    answer = client.first_answer(Received(entries, {"momentum": m}), config)
    lite = make_client(FedAvgClient, objective="mimelite").fit(Received(entries, {"momentum": m}), config)
    assert answer.keys() == {"gradient"}
    for name, found in answer["gradient"].items():
        np.testing.assert_array_equal(found, lite.records["gradient"][name])
    assert not make_client(FedAvgClient).first_answer(Received(entries), config)

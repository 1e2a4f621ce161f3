"""Clients of a number or two, and a small network trained by SGD in float64, formula by formula."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from clients import ContextStore, Examples, LocalTask, Memory, Regression
from fedbn_flower.names import CLIENT

from ..helpers import CONFIG

PULLED = CONFIG | {"eval-splits": "test"}


def numbers(name, x, y, training, layers=1, number=0, **settings):
    """f = mean (w x - y)^2 of some examples, w the product of the layers' single weights, all 1 at first."""
    model = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(layers)))
    initial = {name: np.ones((1, 1), np.float32) for name in model.state_dict()}
    some = Examples({"x": np.float32(x)[:, None], "y": np.float32(y)[:, None]}, np.arange(len(x)))
    task = LocalTask(model, initial, some, {"test": some}, training, (0, number), problem=Regression(),
                     client_settings=settings)  # fmt: skip
    return CLIENT.find(name)(task, Memory(ContextStore()))


def two_clients(name, layers, training, **settings):
    """f_0 = (2 - w)^2 and f_1 = (1 - 2w)^2."""
    return [numbers(name, [i + 1], [2 - i], training, layers, i, **settings) for i in range(2)]


def fit(clients, x, **config):
    """What each sends, in a round from x."""
    updates = [client.fit([np.float32([[x]])], CONFIG | config) for client in clients]
    for client in clients:
        client.memory.commit()
    return [float(update.arrays[0].item()) for update in updates]


NAMES = ("1.weight", "1.bias", "2.weight", "2.bias", "4.weight", "4.bias")


def arrays_of(client):
    return {name: np.array(array, np.float64) for name, array in client.task.initial.items()}


def whole(client):
    """All of a client's examples as one batch."""
    examples = client.task.train
    x = torch.from_numpy(examples.columns["x"][examples.rows]).double().flatten(1)
    return x, torch.from_numpy(examples.columns["y"][examples.rows])


def train(entries, x, y, lr, steps, normalise):
    """Return the entries after some steps on one batch, and what went into the normalisation in each.

    ``normalise`` gives the mean and the variance by which the inner values z are normalised, of z.
    """
    w = {
        name: torch.tensor(entries[name], requires_grad=True)
        for name in entries
        if name in NAMES or "factor" in name
    }
    seen = []
    for _ in range(steps):
        z = x @ w["1.weight"].T + w["1.bias"]
        seen.append(z.detach().numpy())
        mean, variance = normalise(z, w)
        hidden = ((z - mean) / (variance + 1e-5).sqrt() * w["2.weight"] + w["2.bias"]).relu()
        loss = functional.cross_entropy(hidden @ w["4.weight"].T + w["4.bias"], y)
        gradients = torch.autograd.grad(loss, list(w.values()), allow_unused=True)
        for p, gradient in zip(w.values(), gradients, strict=True):
            p.data -= lr * gradient
    return {name: p.detach().numpy() for name, p in w.items()}, seen


def of_batch(z, _):
    return z.mean(0), z.var(0, correction=0)


def of_received(entries):
    mean, variance = (torch.tensor(entries[f"2.running_{kind}"]) for kind in ("mean", "var"))
    return lambda z, _: (mean, variance)

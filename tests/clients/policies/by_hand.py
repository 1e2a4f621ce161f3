"""One linear layer, a normalisation, ReLU and a head, trained by SGD in float64, formula by formula."""

import numpy as np
import torch
from torch.nn import functional

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

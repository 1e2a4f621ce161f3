"""A small network, its training and finite differences written out: what objectives and losses are held to.

Nothing here calls what it checks. All is float64; a model is its entries by name, a point the trained ones of
them as one flat vector.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from clients import CLIENTS, LOSSES, OBJECTIVES, ContextStore, Examples, LocalTask, LocalTraining, Memory

from .helpers import CONFIG

CLASSES = 4
COUNTS = torch.tensor([20.0, 12.0, 8.0, 0.0], dtype=torch.float64)
"""Of the client's 40 examples; it lacks the last class."""
RATE, MOMENTUM, DECAY, BOUND = 0.3, 0.9, 0.01, 0.5
SHAPES = {
    "1.weight": (5, 4), "1.bias": (5,), "2.weight": (5,), "2.bias": (5,), "4.weight": (CLASSES, 5),
    "4.bias": (CLASSES,),
}  # fmt: skip
CASES = [("shared", False), ("fedbn", True)]
"""Clients, and whether the model has BatchNorm."""
LOCAL = {
    "shared": (),
    "silobn": ("2.running_mean", "2.running_var", "2.num_batches_tracked"),
    "fedbn": ("2.running_mean", "2.running_var", "2.num_batches_tracked", "2.weight", "2.bias"),
}
Entries = dict[str, Tensor]


@dataclass(frozen=True)
class At:
    """What a formula is of: a batch, the local model, the received one, and where the last round ended."""

    inputs: Tensor
    targets: Tensor
    w: Entries
    x: Entries
    previous: Entries | None


Formula = Callable[[At], Tensor]
Where = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
"""From a function that gives a point's gradient, and a point, to the point whose gradient is stepped by."""


def here(gradient: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    return point


def network(batch_norm: bool, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    middle = nn.BatchNorm1d(5) if batch_norm else nn.Identity()
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), middle, nn.Tanh(), nn.Linear(5, CLASSES)).double()


def forward(w: Mapping[str, Tensor], inputs: Tensor, train: bool = True) -> tuple[Tensor, Tensor]:
    """What goes into the last layer, and what comes out of it."""
    h = inputs.flatten(1) @ w["1.weight"].T + w["1.bias"]
    if "2.weight" in w:
        mean, var = statistics(h) if train else (w["2.running_mean"], w["2.running_var"])
        h = (h - mean) / (var + 1e-5).sqrt() * w["2.weight"] + w["2.bias"]
    z = torch.tanh(h)
    return z, z @ w["4.weight"].T + w["4.bias"]


def statistics(h: Tensor) -> tuple[Tensor, Tensor]:
    return h.mean(0), ((h - h.mean(0)) ** 2).mean(0)


def moved(w: Entries, inputs: Tensor) -> Entries:
    """The BatchNorm statistics after a training pass at w."""
    if "2.weight" not in w:
        return {}
    mean, var = statistics(inputs.flatten(1) @ w["1.weight"].T + w["1.bias"])
    unbiased = var * len(inputs) / (len(inputs) - 1)
    return {
        "2.running_mean": 0.9 * w["2.running_mean"] + 0.1 * mean,
        "2.running_var": 0.9 * w["2.running_var"] + 0.1 * unbiased,
        "2.num_batches_tracked": w["2.num_batches_tracked"] + 1,
    }


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Of each example."""
    shares = logits.exp() / logits.exp().sum(1, keepdim=True)
    return -torch.stack([row[y] for row, y in zip(shares, targets, strict=True)]).log()


def usual(at: At) -> Tensor:
    return cross_entropy(forward(at.w, at.inputs)[1], at.targets).mean()


def flat(w: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([w[n].detach().flatten() for n in SHAPES if n in w])


def at_point(w: Entries, point: Tensor) -> Entries:
    """The model with its trained entries from a point."""
    names = [n for n in SHAPES if n in w]
    parts = torch.split(point, [w[n].numel() for n in names])
    return w | {n: part.view(SHAPES[n]) for n, part in zip(names, parts, strict=True)}


def numeric(f: Callable[[Tensor], Tensor], point: Tensor, step: float = 1e-5) -> Tensor:
    """Central differences."""
    steps = torch.eye(len(point), dtype=torch.float64) * step
    return torch.stack([(f(point + e) - f(point - e)) / (2 * step) for e in steps])


def exact(f: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    """PyTorch's gradient of what is written out."""
    point = point.clone().requires_grad_()
    return torch.autograd.grad(f(point), point)[0]


def make_client(policy, batch_norm, objective="plain", loss="auto", loss_settings=None, training=None):
    """A client on 40 examples of float64, of classes as `COUNTS` says."""
    rng = np.random.default_rng(3)
    labels = rng.permutation(np.repeat(np.arange(CLASSES), COUNTS.int().numpy()))
    train = Examples({"x": rng.random((40, 1, 2, 2)), "y": labels}, np.arange(40))
    model = network(batch_norm)
    initial = {name: entry.numpy().copy() for name, entry in model.state_dict().items()}
    training = training or LocalTraining(1, 8)
    kinds = OBJECTIVES[objective], LOSSES[loss]
    task = LocalTask(model, initial, train, {"test": train}, training, (0, 5), kinds[0], loss=kinds[1],
                     loss_settings=loss_settings or {})  # fmt: skip
    return CLIENTS[policy](task, Memory(ContextStore()))


def entries_like(w: Mapping[str, Tensor], seed: int) -> Entries:
    """Another model's entries."""
    rng = np.random.default_rng(seed)
    noise = {n: torch.from_numpy(rng.normal(scale=0.3, size=tuple(e.shape))) for n, e in w.items()}
    return {n: e + noise[n].abs() if e.is_floating_point() else e + seed for n, e in w.items()}


def check_gradient(client, formula: Formula, where: Where = here, config=None, records=None) -> None:
    """The gradient of a batch, away from x and with entries of its own, against finite differences.

    Its objective finds another model as the one with which the last round ended, and what was received.
    """
    policy, model = next(n for n, cls in CLIENTS.items() if type(client) is cls), client.task.model
    fresh = {n: e.clone() for n, e in model.state_dict().items()}
    received, own, previous = (entries_like(fresh, seed) for seed in (1, 2, 3))
    x = received | {n: own[n] for n in LOCAL[policy]}
    client.memory.write("local", {n: own[n].numpy() for n in LOCAL[policy]})
    client.memory.write(client.objective_group, {n: e.numpy() for n, e in previous.items()})
    client.load(model.state_dict(), [received[n].numpy() for n in client.shared_names])
    run = client.begin_run(dict(model.named_parameters()), CONFIG | (config or {}), records or {})
    w = x | {n: e for n, e in entries_like(x, 4).items() if n in SHAPES}
    model.load_state_dict(w)
    inputs, targets = client.task.train.prepared(np.arange(3, 12))

    def f(point):
        return formula(At(inputs, targets, at_point(w, point), x, previous))

    model.train()
    point = flat(w)
    stepped_by = where(lambda p: numeric(f, p), point)
    loss, output = run.objective.loss(model, inputs, targets)
    loss.backward()
    run.objective.correct_gradients()
    assert loss.item() == pytest.approx(f(stepped_by).item(), abs=1e-9)
    torch.testing.assert_close(output, forward(at_point(w, stepped_by), inputs)[1], atol=1e-9, rtol=0)
    got = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(got, numeric(f, stepped_by), atol=1e-7, rtol=0)
    assert torch.equal(flat(model.state_dict()), point)


def check_rounds(client, formula: Formula, where: Where = here, config=None, before=None) -> None:
    """Three rounds of a client's training, from other received entries each, against the same written out.

    ``before`` makes the formula's previous model of all that were received; by default the last trained.
    """
    policy, model = next(n for n, cls in CLIENTS.items() if type(client) is cls), client.task.model
    initial = {n: e.clone() for n, e in model.state_dict().items()}
    own = {n: initial[n] for n in LOCAL[policy] if n in initial}
    ended, received = None, []
    for server_round in (1, 2, 3):
        x = entries_like(initial, 5 + server_round) | own
        received.append(x)
        told = CONFIG | {"server-round": server_round, "client-lr": RATE} | (config or {})
        arrays, _, metrics = client.fit([x[n].numpy() for n in client.shared_names], told)
        client.memory.commit()
        previous = before(received) if before else ended
        ended = trained(client, formula, where, x, previous, server_round)
        own = {n: ended[n] for n in own}
        sent = dict(zip(client.shared_names, map(torch.from_numpy, arrays), strict=True))
        assert metrics["local-steps"] == 10
        kept = {n: torch.from_numpy(a) for n, a in (client.memory.read("local") or {}).items()}
        assert kept.keys() == own.keys()
        for name, entry in (sent | kept).items():
            torch.testing.assert_close(entry, ended[name], atol=1e-9, rtol=0)


def trained(
    client, formula: Formula, where: Where, x: Entries, previous: Entries | None, server_round: int
) -> Entries:
    """Two epochs in batches of 8: clipped gradients, weight decay, momentum; BatchNorm moves at w,
    wherever the gradient is found."""
    rng = np.random.default_rng([0, 5, server_round])
    rng.integers(2**63)
    w, velocity = dict(x), torch.zeros_like(flat(x))
    for batch in (part for _ in range(2) for part in np.split(rng.permutation(40), 5)):
        inputs, targets = client.task.train.prepared(batch)

        def f(point, w=w, inputs=inputs, targets=targets):
            return formula(At(inputs, targets, at_point(w, point), x, previous))

        point = flat(w)
        stepped_by = where(lambda p, f=f: exact(f, p), point)
        gradient = exact(f, stepped_by)
        gradient = gradient * min(1.0, BOUND / (gradient.norm().item() + 1e-6)) + DECAY * point
        velocity = MOMENTUM * velocity + gradient
        w = at_point(w, point - RATE * velocity) | moved(w, inputs)
    return w


TRAINING = LocalTraining(2, 8, "sgd", MOMENTUM, DECAY, BOUND)

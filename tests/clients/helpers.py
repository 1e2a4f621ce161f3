"""A client on made-up images, and its rounds."""

import numpy as np
import torch
from torch import nn

from clients import OBJECTIVES, ContextStore, Examples, LocalTask, LocalTraining, Memory, Received
from fedbn_flower.names import CLIENT

CONFIG = {"server-round": 1, "client-lr": 0.1, "eval-splits": ""}


def make_examples(count=40, seed=0, classes=3, shape=(1, 2, 2)):
    rng = np.random.default_rng(seed)
    images = (rng.integers(0, 256, (count, *shape)) / 255).astype(np.float32)
    return Examples({"x": images, "y": rng.integers(0, classes, count)}, np.arange(count))


def small_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def conv_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3), nn.BatchNorm1d(3)
    )


def make_client(policy, record=None, model=None, seed=0, training=None, objective="plain"):
    """A client of a class, or of a name."""
    model = model or small_model()
    initial = {name: entry.numpy(force=True).copy() for name, entry in model.state_dict().items()}
    task = LocalTask(
        model,
        initial,
        make_examples(seed=seed),
        {"test": make_examples(30, seed=9), "val": make_examples(20, seed=8)},
        training or LocalTraining(epochs=1, batch_size=8),
        (0, seed),
        OBJECTIVES[objective],
    )
    cls = CLIENT.find(policy) if isinstance(policy, str) else policy
    return cls(task, Memory(ContextStore(record)))


def batch_statistics(layer="2", channels=5):
    """What FedTAN's server sends of `small_model`, as if one client had one batch."""
    zeros, ones = np.zeros(channels, np.float32), np.ones(channels, np.float32)
    mean, variance = f"0:{layer}.running_mean", f"0:{layer}.running_var"
    of_layer = {mean: zeros, variance: ones, f"{mean}.gradient": zeros, f"{variance}.gradient": zeros}
    return of_layer | {"shares": np.ones(2), "weight": np.full(1, 40.0)}


def received(client, value=0.0):
    """The initial model, and what servers send beside it to any objective, with this value."""
    alike = {name: np.full_like(client.task.initial[name], value) for name in client.trained_names}
    names = ("control", "gradient", "h", "perturbation", "momentum", "second-moment")
    records = {**dict.fromkeys(names, alike), "batch-statistics": batch_statistics()}
    return Received({name: client.task.initial[name] for name in client.shared_names}, records)


def two_rounds(client, value=0.0, **config):
    """All that a client sends and keeps in two rounds, by (round, group, name), and the metrics of both."""
    found, metrics = {}, []
    for server_round in (1, 2):
        update = client.fit(received(client, value), CONFIG | {"server-round": server_round} | config)
        client.memory.commit()
        groups = {"sent": update.arrays.by_name(), **update.records, **client.memory._store.groups()}
        for group, entries in groups.items():
            found |= {(server_round, group, name): entry for name, entry in entries.items()}
        metrics.append(update.metrics)
    return found, metrics

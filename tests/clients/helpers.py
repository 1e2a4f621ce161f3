"""A client on made-up images."""

import numpy as np
import torch
from torch import nn

from clients import OBJECTIVES, ContextStore, Examples, LocalTask, LocalTraining, Memory

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


def make_client(cls, record=None, model=None, seed=0, training=None, objective="plain"):
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
    return cls(task, Memory(ContextStore(record)))


def batch_statistics(layer="2", channels=5):
    """What FedTAN's server sends of `small_model`, as if one client had one batch."""
    zeros, ones = np.zeros(channels, np.float32), np.ones(channels, np.float32)
    mean, variance = f"0:{layer}.running_mean", f"0:{layer}.running_var"
    of_layer = {mean: zeros, variance: ones, f"{mean}.gradient": zeros, f"{variance}.gradient": zeros}
    return of_layer | {"shares": np.ones(2), "weight": np.full(1, 40.0)}

"""Heterogeneous quadratics with a closed-form optimum, through the real strategies, adapter and clients."""

import sys

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord
from torch import nn

from clients import OBJECTIVES, Examples, LocalTask, LocalTraining, Objective
from fedbn_flower.runtime.grid import InlineGrid
from strategies import FedAvg, FedDyn, Scaffold

CLIENTS, SIZE, LOCAL_STEPS = 8, 3, 5
PARTNER = {"feddyn": "feddyn", "scaffold": "scaffold"}
RNG = np.random.default_rng(0)
CURVATURE = RNG.uniform(0.2, 2.0, (CLIENTS, SIZE)).astype(np.float32)
CENTRE = RNG.normal(size=(CLIENTS, SIZE)).astype(np.float32)


class Quadratic(nn.Module):
    """The client's f_i in place of a network; ``partition`` says whose."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(SIZE))
        self.partition = 0

    def forward(self, images):
        a, b = (torch.from_numpy(v[self.partition]) for v in (CURVATURE, CENTRE))
        return (0.5 * a * (self.w - b) ** 2).sum().expand(len(images), 1)


@pytest.fixture
def quadratic(monkeypatch):
    model = Quadratic()

    def task(config, partition_id, node_config, scale):
        model.partition = partition_id
        one = Examples({"x": np.zeros((1, 1), np.float32), "y": np.zeros(1, np.int64)}, np.arange(1))
        training = LocalTraining(epochs=LOCAL_STEPS, batch_size=0)
        return LocalTask(
            model,
            {"w": np.zeros(SIZE, np.float32)},
            one,
            {},
            training,
            (0, partition_id),
            OBJECTIVES[config.objective],
        )

    def loss(self, model, images, labels, reduction="mean"):
        output = model(images)
        return output.mean(), output

    monkeypatch.setattr("fedbn_flower.site.adapter.local_task", task)
    monkeypatch.setattr(Objective, "loss", loss)


@pytest.mark.parametrize(
    ("strategy", "objective", "models"),
    [
        (FedAvg(), "fedprox", [0.75, 1.21875]),
        (FedDyn(alpha=1.0), "feddyn", [1.5, 2.0625]),
        (Scaffold(), "scaffold", [0.875, 1.3671875]),
    ],
)
def test_two_clients_and_two_rounds_by_hand(quadratic, configured, monkeypatch, strategy, objective, models):
    """f_i = 1/2 (w - b_i)^2 with b = (4, 0); two steps of rate 1/4 from x = 0; mu = alpha = 1.

    FedProx: 0, 1, 1.5 and 0, 0, 0; then from 0.75: 1.5625, 1.96875 and 0.5625, 0.46875.
    FedDyn: the same first round, so g = (-1.5, 0), h = -0.75, x = 0.75 + 0.75; then 1.75, 1.875 and 1.125,
    0.9375, so h = -0.75 + 0.09375 and x = 1.40625 + 0.65625.
    SCAFFOLD: 0, 1, 1.75 and 0, 0, 0, so c_i = (-3.5, 0), c = -1.75; then from 0.875 with the gradients
    w - 2.25 and w - 1.75: 1.21875, 1.4765625 and 1.09375, 1.2578125.
    """
    this = sys.modules[__name__]
    monkeypatch.setattr(this, "CURVATURE", np.ones((2, SIZE), np.float32))
    monkeypatch.setattr(this, "CENTRE", np.array([[4] * SIZE, [0] * SIZE], np.float32))
    monkeypatch.setattr(this, "LOCAL_STEPS", 2)
    values = {"strategy": PARTNER.get(objective, "fedavg"), "objective": objective, "client": "shared"}
    sent = []
    strategy.start(
        grid=InlineGrid(2, configured(**values).to_user_config()),
        initial_arrays=ArrayRecord({"w": Array(np.zeros(SIZE, np.float32))}),
        num_rounds=2,
        train_config=ConfigRecord(
            {"client-lr": 0.25, "objective": objective, "eval-splits": "",
             "alpha": 1.0, "mu": 1.0}
        ),
        evaluate_fn=lambda _, arrays: sent.append(arrays["w"].numpy()),
    )  # fmt: skip
    np.testing.assert_allclose(sent[1:], np.repeat(models, SIZE).reshape(2, SIZE), atol=1e-6)


class LosesOneReply(InlineGrid):
    """The first reply of round 2 is lost after the client sent it."""

    lost = None

    def work(self, messages, timeout):
        for message, reply in zip(messages, super().work(messages, timeout), strict=True):
            config = message.content.config_records.get("config")
            if config and config["server-round"] == 2 and self.lost is None:
                received, sent = (m.content["arrays"]["w"].numpy() for m in (message, reply))
                self.lost = sent - received
            else:
                yield reply


@pytest.mark.slow
@pytest.mark.parametrize("grid_class", [InlineGrid, LosesOneReply])
def test_feddyns_server_and_clients_agree_up_to_replies_lost_after_sending(quadratic, configured, grid_class):
    """h is the mean of all g_i; a reply lost after sending leaves them apart by its alpha (x_i - x) / M."""
    values = {"strategy": "feddyn", "objective": "feddyn", "client": "shared"}
    config = configured(**values, partition="iid", num_clients=CLIENTS).to_user_config()
    grid = grid_class(CLIENTS, config)
    strategy = FedDyn(alpha=0.5, fraction_train=0.75, fraction_evaluate=0.0)
    train_config = {"client-lr": 0.1, "objective": "feddyn", "eval-splits": "", "alpha": 0.5}
    start = ArrayRecord({"w": Array(np.zeros(SIZE, np.float32))})
    strategy.start(grid=grid, initial_arrays=start, num_rounds=6, train_config=ConfigRecord(train_config))
    memories = [memory["feddyn"]["w"] for i in range(CLIENTS) if (memory := grid.client_memory(i))]
    apart = np.sum(memories, axis=0) / CLIENTS - strategy.rule_state.vectors["h"]
    expected = -0.5 * grid.lost / CLIENTS if grid_class is LosesOneReply else np.zeros(SIZE)
    np.testing.assert_allclose(apart, expected, atol=1e-6)
    assert len(memories) > 1

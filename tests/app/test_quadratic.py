"""Heterogeneous quadratics with a closed-form optimum, through the real strategies, adapter and clients."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord
from safetensors.numpy import load
from torch import nn

from clients import Examples, LocalTask, LocalTraining, Objective
from fedbn_flower.client_app import app
from fedbn_flower.runtime import InlineGrid
from strategies import FedAvg, FedDyn, Scaffold

CLIENTS, SIZE, LOCAL_STEPS = 8, 3, 5
RNG = np.random.default_rng(0)
CURVATURE = RNG.uniform(0.2, 2.0, (CLIENTS, SIZE)).astype(np.float32)
CENTRE = RNG.normal(size=(CLIENTS, SIZE)).astype(np.float32)
OPTIMUM = (CURVATURE * CENTRE).sum(0) / CURVATURE.sum(0)
"""Where the mean of f_i(w) = 1/2 sum_j a_ij (w_j - b_ij)^2 is least."""


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

    def task(config, partition_id, node_config):
        model.partition = partition_id
        one = Examples(np.zeros((1, 1, 1, 1), np.uint8), np.zeros(1, np.int64), np.arange(1))
        training = LocalTraining(epochs=LOCAL_STEPS, batch_size=0)
        return LocalTask(model, {"w": np.zeros(SIZE, np.float32)}, one, {}, training, (0, partition_id))

    def loss(self, model, images, labels):
        output = model(images)
        return output.mean(), output

    monkeypatch.setattr("fedbn_flower.client_app.local_task", task)
    monkeypatch.setattr(Objective, "loss", loss)


def distance_to_optimum(strategy, objective, rounds, configured):
    config = configured(
        strategy=strategy.partner or "fedavg",
        objective=objective,
        client="fedavg",
        partition="iid",
        num_clients=CLIENTS,
    ).to_user_config()
    train_config = ConfigRecord(
        {
            "client-lr": 0.1, "client-lr-decay": 1.0, "objective": objective, "eval-splits": "",
            "alpha": 0.5, "mu": 0.0,
        }
    )  # fmt: skip
    result = strategy.start(
        grid=InlineGrid(app, CLIENTS, config),
        initial_arrays=ArrayRecord({"w": Array(np.zeros(SIZE, np.float32))}),
        num_rounds=rounds,
        train_config=train_config,
    )
    assert not strategy.report.failures
    return np.abs(result.arrays["w"].numpy() - OPTIMUM).max()


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_feddyn_and_scaffold_reach_the_optimum_and_fedavg_does_not(quadratic, configured, fraction):
    sampling = {"fraction_train": fraction, "fraction_evaluate": 0.0}
    rounds = 60 if fraction == 1 else 200
    fedavg = distance_to_optimum(FedAvg(**sampling), "sgd", rounds, configured)
    feddyn = distance_to_optimum(FedDyn(alpha=0.5, **sampling), "feddyn", rounds, configured)
    scaffold = distance_to_optimum(Scaffold(**sampling), "scaffold", rounds, configured)
    assert fedavg > 0.01
    assert feddyn < 1e-4
    assert scaffold < 1e-4


class LosesOneReply(InlineGrid):
    """The first reply of round 2 is lost after the client sent it."""

    lost = None

    def submit(self, message):
        answer = super().submit(message)
        config = message.content.config_records.get("config")
        if not config or config["server-round"] != 2 or self.lost is not None:
            return answer
        self.lost = np.zeros(SIZE)

        def reply(timeout):
            self.lost = (
                answer(timeout).content["arrays"]["w"].numpy() - message.content["arrays"]["w"].numpy()
            )

        return reply


@pytest.mark.parametrize("grid_class", [InlineGrid, LosesOneReply])
def test_feddyns_server_and_clients_agree_up_to_replies_lost_after_sending(quadratic, configured, grid_class):
    """h is the mean of all g_i; a reply lost after sending leaves them apart by its alpha (x_i - x) / M."""
    values = {"strategy": "feddyn", "objective": "feddyn", "client": "fedavg"}
    config = configured(**values, partition="iid", num_clients=CLIENTS).to_user_config()
    grid = grid_class(app, CLIENTS, config)
    strategy = FedDyn(alpha=0.5, fraction_train=0.75, fraction_evaluate=0.0)
    train_config = {
        "client-lr": 0.1,
        "client-lr-decay": 1.0,
        "objective": "feddyn",
        "eval-splits": "",
        "alpha": 0.5,
    }
    start = ArrayRecord({"w": Array(np.zeros(SIZE, np.float32))})
    strategy.start(grid=grid, initial_arrays=start, num_rounds=6, train_config=ConfigRecord(train_config))
    states = [load(state)["feddyn/w"] for i in range(CLIENTS) if (state := grid.client_state(i))]
    apart = np.sum(states, axis=0) / CLIENTS - strategy.state["h"]
    expected = -0.5 * grid.lost / CLIENTS if grid_class is LosesOneReply else np.zeros(SIZE)
    np.testing.assert_allclose(apart, expected, atol=1e-6)
    assert len(states) > 1

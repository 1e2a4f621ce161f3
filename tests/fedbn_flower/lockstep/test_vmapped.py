"""Networks without stacked layers: as one by one, or one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from clients import CLIENTS, FedAvgClient, LocalTraining
from fedbn_flower.lockstep import cohorts, fit_in_lockstep, reason_not_equivalent, reason_not_supported

from ...clients.helpers import CONFIG, conv_model, make_client
from ...clients.networks import dropping
from .test_lockstep import check, cohort


class Separable(nn.Module):
    """A residual block with a depthwise convolution, BatchNorm and GroupNorm."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(1, 4, 1)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.bn = nn.BatchNorm2d(4)
        self.norm = nn.GroupNorm(2, 4)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.stem(x)
        return self.head((x + self.norm(self.bn(self.depthwise(x)).relu())).flatten(1))


class Attention(nn.Module):
    """Each pixel is a token."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Linear(1, 4)
        self.place = nn.Parameter(torch.randn(4, 4))
        self.attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.attention(self.stem(x.flatten(1).unsqueeze(2)) + self.place).mean(1))


def tokens():
    torch.manual_seed(0)
    return nn.Sequential(nn.EmbeddingBag(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))


TRAININGS = {
    "momentum": LocalTraining(2, 8, momentum=0.9, weight_decay=0.1),
    "clipped": LocalTraining(2, 8, clip_norm=0.2, agc=0.01),
}


@pytest.mark.parametrize(
    ("model", "client", "objective", "training"),
    [
        (Separable, "fedbn", "scaffold", "momentum"),
        (Separable, "fixbn", "plain", "clipped"),
        (Attention, "fedper", "feddyn", "clipped"),
    ],
)
def test_a_network_without_stacked_layers_is_as_one_by_one(model, client, objective, training):
    """Last batches have 1 to 9 examples, and clients with few steps are done before the others."""

    def make():
        clients = cohort(CLIENTS[client], TRAININGS[training], model, (17, 24, 9, 2), objective)
        for one in clients:
            one.fix_from = 2
        return clients

    check(make, {"alpha": 0.1, "client-lr": 0.05})


def task_of(model, device="cpu", **columns):
    task = make_client(FedAvgClient, model=model).task
    return replace(task, train=replace(task.train, device=device, **columns))


@pytest.mark.parametrize("make", [Separable, Attention])
def test_it_is_chosen_on_a_gpu_or_where_it_is_asked_for(make):
    task = task_of(make())
    assert reason_not_supported(FedAvgClient, task)
    assert reason_not_supported(FedAvgClient, task, everywhere=True) == ""
    assert reason_not_supported(FedAvgClient, task_of(make(), "cuda")) == ""
    assert reason_not_equivalent(FedAvgClient, task, {}) == ""


def test_a_large_network_is_not_mapped_on_a_gpu(monkeypatch):
    """Of 8 + 40 + 8 + 8 + 51 weights, with batches of 8."""
    found = []
    for bound in (919, 920):
        monkeypatch.setattr(cohorts, "MUCH_WORK", bound)
        found.append([cohorts._takes_longer(task_of(Separable(), device)) for device in ("cuda", "cpu")])
    assert found == [[True, False], [False, False]]
    monkeypatch.setattr(cohorts, "MUCH_WORK", 0)
    assert not cohorts._takes_longer(task_of(conv_model(), "cuda"))


def test_whole_numbers_are_tried_with_those_of_the_data():
    """An embedding of five rows has no sixth."""
    rng = np.random.default_rng(0)
    columns = {"x": rng.integers(5, size=(40, 6)), "y": rng.integers(3, size=40)}
    task = task_of(tokens(), columns=columns)
    assert reason_not_supported(FedAvgClient, task) == "inputs are torch.int64"
    assert reason_not_supported(FedAvgClient, task, everywhere=True) == ""
    assert reason_not_equivalent(FedAvgClient, task, {}) == ""


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (dropping, "called random operation"),
        (lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3)), "raised"),
    ],
)
def test_what_cannot_be_mapped_trains_one_by_one(model, why):
    """Dropout draws from each client's own generator; a mean over all batches asks for their number."""
    task = task_of(model())
    assert reason_not_supported(FedAvgClient, task, everywhere=True) == ""
    assert why in reason_not_equivalent(FedAvgClient, task, {})


def test_one_example_under_batch_norm_leaves_the_cohort_to_one_by_one():
    def make():
        return nn.Sequential(nn.Flatten(), nn.LayerNorm(4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    clients = cohort(CLIENTS["shared"], LocalTraining(1, 8), make, sizes=(9, 1))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        fit_in_lockstep(clients, clients[0].get_parameters({}), CONFIG)

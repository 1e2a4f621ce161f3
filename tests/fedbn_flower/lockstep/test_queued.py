"""Clients that are queued: the bits of one by one, of any network."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from clients import CLIENTS, OBJECTIVES, LocalTraining, Received
from clients.modules.first_values import keep_first_values
from fedbn_flower.lockstep import cohorts, queued, reason_not_equivalent
from fedbn_flower.lockstep.queued import reason_not_queued, start_queued

from ...clients.helpers import CONFIG, batch_statistics, make_client, small_model
from ...clients.networks import dropping
from ...clients.test_gpu import DEVICE, on_device
from .test_lockstep import cohort


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
        self.attention = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.attention(self.stem(x.flatten(1).unsqueeze(2))).mean(1))


class Counting(nn.Module):
    """Scales by a number that is no entry, and grows with each pass."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head, self.passes = nn.Linear(4, 3), 0

    def forward(self, x):
        self.passes += 1
        return self.head(x.flatten(1)) / self.passes


TRAINING = LocalTraining(2, 8, momentum=0.9)


def answers(fit, client, model, objective="plain", training=TRAINING):
    """All that clients of 17, 40, ..., 2 examples send and keep in two rounds."""
    made = cohort(CLIENTS[client], training, lambda: model, objective=objective)
    clients = [on_device(one, DEVICE) for one in made]
    first = clients[0]
    small = {name: np.full_like(first.task.initial[name], 0.01) for name in first.trained_names}
    records = ("control", "gradient", "h", "perturbation", "momentum", "second-moment")
    given = Received(
        first.get_parameters({}).by_name(),
        {**dict.fromkeys(records, small), "batch-statistics": batch_statistics()},
    )
    found = []
    for server_round in (1, 2):
        config = CONFIG | {"server-round": server_round, "eval-splits": "test"}
        for one, update in zip(clients, fit(clients, given, config), strict=True):
            one.memory.commit()
            found += [*update.arrays, *(a for record in update.records.values() for a in record.values())]
            found += [update.num_examples, repr(sorted(update.metrics.items()))]
            for group in ("local", one.objective_group):
                found += (one.memory.read(group) or {}).values()
            found = [np.array(value) for value in found]
    return found


def queue(clients, given, config):
    """What such clients answer, made anew as a node does for each message."""
    clients = [type(one)(one.task, one.memory) for one in clients]
    return [result() for result in start_queued(clients, given, config)]


def one_by_one(clients, given, config):
    return [one.fit(given, config) for one in clients]


def check(*case):
    found, expected = (answers(fit, *case) for fit in (queue, one_by_one))
    assert len(found) == len(expected) >= 48
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("model", [Separable, Attention, dropping])
@pytest.mark.parametrize("client", ["shared", "fedbn"])
def test_any_network_has_the_bits_of_one_by_one(client, model):
    """Dropout draws what it draws for the client alone."""
    check(client, model())


def test_state_that_is_no_entry_begins_anew_in_each_copy():
    model = Counting()
    keep_first_values(model)
    model.passes = 7
    check("shared", model)


QUEUED = [name for name in CLIENTS if not reason_not_queued(CLIENTS[name])]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("client", "objective"),
    [*((client, "plain") for client in QUEUED), *(("fedbn", name) for name in OBJECTIVES if name != "plain")],
)
def test_every_client_and_objective(client, objective):
    check(client, small_model(), objective, LocalTraining(2, 8))


def test_a_client_that_fails_fails_alone():
    clients = cohort(CLIENTS["fedbn"], TRAINING)
    clients[1].task.train.columns["x"][3] = np.nan
    clients[2].task.train.columns["y"][0] = 99
    given = Received(clients[0].get_parameters({}).by_name(), {})
    results = start_queued(clients, given, dict(CONFIG))
    assert [result().num_examples for result in (results[0], *results[3:])] == [17, 33, 9, 2]
    for result, error in zip(results[1:3], (FloatingPointError, IndexError), strict=True):
        with pytest.raises(error):
            result()


def test_without_room_for_all_models_none_is_started(monkeypatch):
    """Whoever asked trains them one by one then: `_train_at_once`."""
    clients = cohort(CLIENTS["shared"], TRAINING)

    def too_much(*given):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(queued, "start_training", too_much)
    with pytest.raises(torch.OutOfMemoryError):
        start_queued(clients, clients[0].get_parameters({}), dict(CONFIG))
    assert queued.copies.cache_info().currsize == 0


class Inputs:
    """Those of a run on a GPU, as far as the choice goes by them."""

    def __init__(self, **values):
        keys = {
            "device": "cuda",
            "strategy": "fedavg",
            "fast": "auto",
            "messages_for": lambda objective: {},
            **values,
        }
        self.config = SimpleNamespace(**keys)


@pytest.mark.parametrize(
    ("client", "why", "size", "how"),
    [
        ("fedbn", "", 8, "in lockstep"),
        ("fedbn", "fewer than 8 a round", 8, "queued, not in lockstep: fewer than 8 a round"),
        ("ditto", "few", 1, "few; not queued: client DittoClient overrides fit"),
        ("fedrep", "few", 1, "few; not queued: client FedRepClient overrides train"),
    ],
)
def test_on_a_gpu_who_does_not_go_in_lockstep_is_queued(client, why, size, how, monkeypatch):
    monkeypatch.setattr(cohorts, "_why_not_in_lockstep", lambda inputs: why)
    monkeypatch.setattr(cohorts, "task_of", lambda inputs, i: make_client(CLIENTS[client]).task)
    found = cohorts.cohort_of(Inputs(client=client))
    assert (found.size, found.why) == (size, how)
    assert cohorts.cohort_of(Inputs(client=client, fast="off")).size == 1


def test_a_trial_finds_a_queue_that_mixes_up_its_clients(monkeypatch):
    task = make_client(CLIENTS["fedbn"]).task
    assert reason_not_equivalent(CLIENTS["fedbn"], task, {}, start_queued) == ""
    monkeypatch.setattr(queued, "copies", lambda model, count: [model] * count)
    monkeypatch.setattr(queued.copies, "cache_clear", lambda: None, raising=False)
    found = reason_not_equivalent(CLIENTS["fedbn"], task, {}, start_queued)
    assert found.startswith("the trial disagreed on")

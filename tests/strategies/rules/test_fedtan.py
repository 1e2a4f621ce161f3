"""FedTAN, both halves: the mean of the clients' first steps is PyTorch's step on all of their batches."""

import copy

import numpy as np
import torch
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from torch import nn
from torch.nn import functional

from clients import (
    OBJECTIVES,
    ContextStore,
    Examples,
    FedAvgClient,
    LocalTask,
    LocalTraining,
    Memory,
    Received,
)
from strategies import STRATEGIES

from ..helpers import CannedGrid, ndarrays, record

SIZES, BATCH, RATE = (30, 20, 5, 2), 8, 0.3


class Network(nn.Module):
    """Two layers of BatchNorm, and one that is called twice; registered in another order than called."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.twice = nn.BatchNorm1d(6, momentum=None)
        self.hidden = nn.Linear(3 * 4, 6)
        self.convolved = nn.BatchNorm2d(3)
        self.convolution = nn.Conv2d(1, 3, 3)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = functional.relu(self.convolved(self.convolution(x))).flatten(1)
        x = self.twice(functional.silu(self.norm(self.hidden(x))))
        return self.head(self.twice(x.square()))


def made(seed=0):
    torch.manual_seed(seed)
    return Network().double()


def task(model, i, objective="fedtan", share=lambda _: 1e-9, augment=None, epochs=1):
    """A client of which every value of the inputs, and the classes, are its own."""
    rng, count = np.random.default_rng(i), SIZES[i]
    x = rng.normal(i, 1 + i, (count, 1, 4, 4))
    examples = Examples({"x": x, "y": rng.integers(0, 2 + (i > 1), count)}, np.arange(count), augment=augment)
    initial = {name: entry.numpy().copy() for name, entry in model.state_dict().items()}
    training = LocalTraining(epochs, BATCH)
    return LocalTask(model, initial, examples, {}, training, (5, i), OBJECTIVES[objective], share=share)


def one_round(model, number=2, lost=lambda i, asked: False, **of_task):
    """The next model, the rule, and what was asked."""
    of_task = {"objective": "fedtan"} | of_task
    rule = STRATEGIES["fedtan" if of_task["objective"] == "fedtan" else "fedavg"](min_available_nodes=1)
    asked = []

    def client(message, i):
        made = FedAvgClient(task(copy.deepcopy(model), i, **of_task), Memory(ContextStore()))
        received = {name: ndarrays(arrays) for name, arrays in message.content.array_records.items()}
        config = dict(message.content.config_records["config"])
        given = Received(received.pop("arrays"), received)
        config |= {"client-lr": RATE, "eval-splits": ""}
        questions = len({*asked})
        asked.append(message.content.object_id)
        if message.metadata.message_type == "train":
            update = made.fit(given, config)
            content = {"arrays": record(update.arrays.by_name())}
        else:
            content = {n: record(arrays) for n, arrays in made.first_answer(given, config).items()}
        content["metrics"] = MetricRecord({"num-examples": SIZES[i]})
        return None if lost(i, questions) else type(message)(RecordDict(content), reply_to=message)

    grid = CannedGrid(len(SIZES), client)
    sent = {name: entry.numpy() for name, entry in model.state_dict().items()}
    messages = rule.configure_train(number, record(sent), ConfigRecord(), grid)
    updated, _ = rule.aggregate_train(number, grid.send_and_receive(messages))
    return updated and ndarrays(updated), rule, list(dict.fromkeys(asked))


def first_batch(i, number=2):
    """What the seed of a client's round draws: a number for torch, then the order of its examples."""
    rng = np.random.default_rng([5, i, number])
    rng.integers(2**63)
    inputs, targets = task(made(), i).train.prepared(rng.permutation(SIZES[i])[:BATCH])
    return inputs, targets


def centralised(model):
    """One step of PyTorch's own BatchNorm on all batches in one."""
    inputs, targets = (torch.cat(parts) for parts in zip(*map(first_batch, range(len(SIZES))), strict=True))
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    return {name: entry.numpy() for name, entry in model.state_dict().items()}


def test_the_mean_of_the_first_steps_is_centralised_batch_norms_step():
    model = made()
    expected = centralised(model)
    got, _, asked = one_round(model)
    assert len(asked) == 3 * 4 + 1
    for name, entry in expected.items():
        np.testing.assert_allclose(got[name], entry, rtol=1e-9, atol=1e-10, err_msg=name)
    plain, *_ = one_round(model, objective="plain")
    assert max(np.abs(plain[name] - expected[name]).max() for name in expected) > 0.05

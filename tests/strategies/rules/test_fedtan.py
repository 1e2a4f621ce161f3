"""FedTAN, both halves: the mean of the clients' first steps is PyTorch's step on all of their batches."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from clients import OBJECTIVES, ContextStore, Examples, FedAvgClient, LocalTask, LocalTraining, Memory
from strategies import STRATEGIES
from strategies.messages.gate import ReplyRefused
from strategies.messages.replies import NO_ANSWER
from strategies.rules.fedtan import _expected

from ..helpers import CannedGrid, answered, ndarrays, train

SIZES, BATCH, RATE = (30, 5, 2), 8, 0.3


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


def task(model, i, objective="fedtan"):
    """A client of which every value of the inputs, and the classes, are its own."""
    rng, count = np.random.default_rng(i), SIZES[i]
    x = rng.normal(i, 1 + i, (count, 1, 4, 4))
    examples = Examples({"x": x, "y": rng.integers(0, 2 + (i > 1), count)}, np.arange(count))
    initial = {name: entry.numpy().copy() for name, entry in model.state_dict().items()}
    of_one_step = {"training": LocalTraining(1, BATCH), "share": lambda _: 1e-9}
    return LocalTask(
        model, initial, examples, {}, seed=(5, i), objective=OBJECTIVES[objective], **of_one_step
    )


def one_round(model, number=2, lost=lambda i, asked: False, weighting="num-examples", objective="fedtan"):
    """The next model, the rule, and the messages that clients got, those of one exchange as one."""
    weighted_by = {"weighted_by_key": "num-examples" if weighting == "num-examples" else None}
    rule = STRATEGIES["fedavg" if objective == "plain" else "fedtan"](min_available_nodes=1, **weighted_by)
    asked = []

    def client(message, i):
        made = FedAvgClient(task(copy.deepcopy(model), i, objective), Memory(ContextStore()))
        asked.append(message.content.object_id)
        number = len({*asked})
        told = {"client-lr": RATE, "eval-splits": "", "weighting": weighting}
        reply = answered(message, made, told)
        return None if lost(i, number) else reply

    grid = CannedGrid(len(SIZES), client)
    sent = {name: entry.numpy() for name, entry in model.state_dict().items()}
    updated, _ = train(rule, sent, grid, number)
    return updated and ndarrays(updated), rule, list(dict.fromkeys(asked))


def first_batch(i, number=2):
    """What the seed of a client's round draws: a number for torch, then the order of its examples."""
    rng = np.random.default_rng([5, i, number])
    rng.integers(2**63)
    inputs, targets = task(made(), i).train.prepared(rng.permutation(SIZES[i])[:BATCH])
    return inputs, targets


def centralised(model, clients=(0, 1, 2)):
    """One step of PyTorch's own BatchNorm on all batches in one."""
    inputs, targets = (torch.cat(parts) for parts in zip(*map(first_batch, clients), strict=True))
    model = copy.deepcopy(model).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    return {name: entry.numpy() for name, entry in model.state_dict().items()}


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for name, entry in expected.items():
        np.testing.assert_allclose(got[name], entry, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weighting", ["num-examples", "uniform"])
def test_the_mean_of_the_first_steps_is_centralised_batch_norms_step(weighting):
    model, exchanges = made(), 3 * 4 + 1
    expected = centralised(model)
    got, _, asked = one_round(model, weighting=weighting)
    assert len(asked) == exchanges
    assert_same(got, expected)
    plain, *_ = one_round(model, weighting=weighting, objective="plain")
    assert max(np.abs(plain[name] - expected[name]).max() for name in expected) > 0.05


@pytest.mark.slow
def test_clients_that_do_not_answer_have_no_part_in_it():
    model = made()
    got, rule, _ = one_round(model, lost=lambda i, asked: i == 1)
    assert_same(got, centralised(model, (0, 2)))
    assert rule.phase_report.failures == {1: NO_ANSWER}
    # Of one question alone: the others' means are those of all.
    some, rule, asked = one_round(model, lost=lambda i, asked: i == 1 and asked == 3)
    assert len(asked) == 13
    assert rule.phase_report.failures == {1: f"question: {NO_ANSWER}"}
    assert not np.allclose(some["head.weight"], got["head.weight"])


def test_without_any_answer_to_a_question_nobody_trains():
    got, rule, asked = one_round(made(), lost=lambda i, asked: asked == 5)
    assert got is None
    assert len(asked) == 5
    assert rule.phase_report.failures == dict.fromkeys(range(3), f"question: {NO_ANSWER}")


def test_answers_that_do_not_come_next_are_refused():
    sent = {name: entry.numpy() for name, entry in made().state_dict().items()}
    known = {"0:norm.running_mean": np.zeros(6)}
    for name, why in {
        "0:other.running_mean": "no statistic of the model",
        "0:head.weight": "no statistic of the model",
        "0:norm.running_mean": "not what comes next",
        "1:norm.running_mean.gradient": "not what comes next",
        "01:norm.running_var": "not what comes next",
        "300:norm.running_var": "not what comes next",  # 100 calls of each of three layers
    }.items():
        with pytest.raises(ReplyRefused, match=f"{name}: {why}"):
            _expected(known, sent, {"shares", name})
    assert _expected(known, sent, {"0:norm.running_var"}).keys() == {"shares", "0:norm.running_var"}
    assert _expected(known, sent, {"299:norm.running_var"})
    with pytest.raises(ReplyRefused, match="not what comes next"):
        _expected(known, sent, {f"{call}:norm.running_var" for call in range(3)})

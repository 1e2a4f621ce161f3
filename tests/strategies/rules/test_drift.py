"""Rules with their objectives, both halves, on quadratics: each paper's algorithm in float64.

Client i has f_i(w) = |A_i w - b_i|^2 / n_i and takes K_i gradient steps. The last entry of w is its own: it
is trained and never sent. In some rounds clients are missing, or train and their answer is lost.
"""

# ruff: noqa: B023, each function is called in its round

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from clients import (
    OBJECTIVES,
    ContextStore,
    Examples,
    FedAvgClient,
    LocalTask,
    LocalTraining,
    Memory,
    Regression,
)
from strategies import STRATEGIES
from strategies.messages.replies import NO_ANSWER

from ..helpers import CannedGrid, answered, ndarrays, record, train, train_reply

CLIENTS, SIZE, LR = 4, 3, 0.05
RNG = np.random.default_rng(7)
EXAMPLES = np.array([6, 4, 9, 5])
A, B = ([RNG.normal(size=(n, *shape)) for n in EXAMPLES] for shape in ((SIZE,), ()))
START, OWN = RNG.normal(size=SIZE), 0.3
STEPS = (3, 3, 5, 2)
ROUNDS = [  # who trains, and whose answer arrives
    ((0, 1, 2, 3), (0, 1, 2, 3)),
    ((0, 2, 3), (0, 3)),
    ((1, 2), (1, 2)),
]


class Written:
    """The clients of a run: its rounds, and what is each one's own."""

    def __init__(self, rounds):
        self.rounds = rounds
        self.own = np.full(CLIENTS, OWN)

    def __iter__(self):
        return iter(self.rounds)

    def gradient(self, i, w):
        """Of f_i at w, and at x with what is the client's own."""
        w = w if len(w) > SIZE else np.append(w, self.own[i])
        return (
            2 / EXAMPLES[i] * np.append(A[i], np.ones((EXAMPLES[i], 1)), 1).T @ (A[i] @ w[:-1] + w[-1] - B[i])
        )

    def at(self, i, x):
        return self.gradient(i, x)[:-1]

    def descend(self, i, x, corrected, momentum=0.0, decay=0.0, shift=0.0, uphill=None, share=1.0):
        """Steps along what is made of the gradient and w, of its shared entries; a share is from uphill."""
        w, v = np.append(x, self.own[i]), 0.0
        for _ in range(STEPS[i]):
            g = self.gradient(i, w)
            if uphill:
                g = (1 - share) * g + share * self.gradient(i, w + uphill(g))
            v = momentum * v + np.append(corrected(g[:-1], w[:-1]), g[-1]) + decay * w
            w = w - LR * (v + np.append(shift + np.zeros(SIZE), 0))
            self.own[i] = w[-1]
        return w[:-1]


def mean(ends, arrived, by_examples=False):
    weights = EXAMPLES[list(arrived)] if by_examples else None
    return np.average([ends[i] for i in arrived], axis=0, weights=weights)


def fednova(clients, mu=0.0, momentum=0.0):
    """a_i is (1 - (1 - lr mu)^K) / (lr mu), Wang et al. 2020, section 4; or theirs for momentum."""
    x = START.copy()
    k = np.array(STEPS)
    a = (1 - (1 - LR * mu) ** k) / (LR * mu) if mu else k
    if momentum:
        a = (k - momentum * (1 - momentum**k) / (1 - momentum)) / (1 - momentum)
    for trained, arrived in clients:
        ends = {i: clients.descend(i, x, lambda g, w: g + mu * (w - x), momentum) for i in trained}
        tau = np.average(a[list(arrived)], weights=EXAMPLES[list(arrived)])
        x = x + tau * mean({i: (ends[i] - x) / a[i] for i in arrived}, arrived, by_examples=True)
        yield x, x


def scaffold(clients, total=CLIENTS, momentum=0.0, decay=0.0, by_examples=False):
    """With momentum it is the loop of NIID-Bench: after each step of PyTorch's SGD, w -= lr (c - c_i)."""
    x, c, c_i = START.copy(), np.zeros(SIZE), np.zeros((CLIENTS, SIZE))
    for trained, arrived in clients:
        ends = {i: clients.descend(i, x, lambda g, w: g, momentum, decay, c - c_i[i]) for i in trained}
        change = {i: -c + (x - ends[i]) / (STEPS[i] * LR) for i in trained}
        for i in trained:
            c_i[i] += change[i]
        x = mean(ends, arrived, by_examples)
        c = c + sum(change[i] for i in arrived) / total
        yield x, x


def fedcm(clients, a=0.3, eta=0.0):
    x, d = START.copy(), np.zeros(SIZE)
    for trained, arrived in clients:
        ends = {i: clients.descend(i, x, lambda g, w: a * g + (1 - a) * d) for i in trained}
        d_new = mean({i: (x - ends[i]) / (LR * STEPS[i]) for i in arrived}, arrived)
        x = x - (eta or np.mean([LR * STEPS[i] for i in arrived])) * d_new
        d = d_new
        yield x, x


def fedacg(clients, lam=0.85, beta=0.2):
    x, m = START.copy(), np.zeros(SIZE)
    for trained, arrived in clients:
        sent = x + lam * m
        ends = {i: clients.descend(i, sent, lambda g, w: g + beta * (w - sent)) for i in trained}
        m = lam * m + mean(ends, arrived, by_examples=True) - sent
        x = x + m
        yield x + lam * m, x


def feddc(clients, total=9, alpha=0.2):
    x, c = START.copy(), np.zeros(SIZE)
    h, c_i, known = np.zeros((CLIENTS, SIZE)), np.zeros((CLIENTS, SIZE)), np.zeros((CLIENTS, SIZE))
    for trained, arrived in clients:
        ends, change = {}, {}
        for i in trained:
            ends[i] = clients.descend(i, x, lambda g, w, i=i: g + alpha * (w + h[i] - x) + c - c_i[i])
            change[i] = -c + (x - ends[i]) / (STEPS[i] * LR)
        for i in trained:
            h[i] += ends[i] - x
            c_i[i] += change[i]
        for i in arrived:
            known[i] += ends[i] - x  # the server's view of the drifts: without lost answers it is h
        x = mean(ends, arrived) + known.sum(axis=0) / total
        c = c + sum(change[i] for i in arrived) / total
        yield x, x


def fedadmm(clients, rho=0.4, eta=1.0):
    """A client that joins late has the initial model behind it."""
    x, y = START.copy(), np.zeros((CLIENTS, SIZE))
    local = np.tile(START, (CLIENTS, 1))
    for trained, arrived in clients:
        change = {}
        for i in trained:
            before = local[i] + y[i] / rho
            local[i] = clients.descend(i, x, lambda g, w, i=i: g + y[i] + rho * (w - x))
            y[i] = y[i] + rho * (local[i] - x)
            change[i] = local[i] + y[i] / rho - before
        x = x + eta * mean(change, arrived)
        yield x, x


def feddyn(clients, total=CLIENTS, alpha=0.4):
    x, h, g_i = START.copy(), np.zeros(SIZE), np.zeros((CLIENTS, SIZE))
    for trained, arrived in clients:
        ends = {i: clients.descend(i, x, lambda g, w, i=i: g - g_i[i] + alpha * (w - x)) for i in trained}
        for i in trained:
            g_i[i] -= alpha * (ends[i] - x)
        h = h - alpha / total * sum(ends[i] - x for i in arrived)
        x = mean(ends, arrived) - h / alpha
        yield x, x


def unit(d):
    return d / np.linalg.norm(d)


def fedspeed(clients, rho=0.2, a=0.7, lam=4.0):
    x, g_i = START.copy(), np.zeros((CLIENTS, SIZE))
    for trained, arrived in clients:
        ends, sent = {}, {}
        for i in trained:
            pulled = lambda g, w, i=i: g - g_i[i] + (w - x) / lam  # noqa: E731
            ends[i] = clients.descend(i, x, pulled, uphill=lambda g: rho * unit(g), share=a)
            g_i[i] -= (ends[i] - x) / lam
            sent[i] = ends[i] - lam * g_i[i]
        x = mean(sent, arrived, by_examples=True)
        yield x, x


def fedsmoo(clients, total=9, rho=0.2, beta=5.0):
    """mu_i changes in every step; h and x are FedDyn's with alpha 1 / beta."""
    x, h, s = START.copy(), np.zeros(SIZE), np.zeros(SIZE)
    dual, mu = np.zeros((CLIENTS, SIZE)), np.zeros((CLIENTS, SIZE))
    for trained, arrived in clients:
        ends, part = {}, {}
        for i in trained:

            def uphill(g, i=i):
                e = rho * unit(g - np.append(mu[i] + s, 0))
                mu[i] += e[:-1] - s
                part[i] = mu[i] - e[:-1]
                return e

            ends[i] = clients.descend(i, x, lambda g, w, i=i: g - dual[i] + (w - x) / beta, uphill=uphill)
            dual[i] -= (ends[i] - x) / beta
        h = h - sum(ends[i] - x for i in arrived) / (beta * total)
        x = mean(ends, arrived) - beta * h
        s = rho * unit(mean(part, arrived))
        yield x, x


LOST_QUESTIONS = {2: {2}}
"""By round, whose answer to the question before the training is lost; both train, and one answer counts."""


def mimelite(clients, optimizer, b1=0.8, b2=0.7, tau=0.1, eta=0.5, corrected=False):
    x, m, v = START.copy(), np.zeros(SIZE), np.zeros(SIZE)

    def moments(g, m, v):
        return b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2 if optimizer == "adam" else v + g**2

    def step(g, w):
        m_new, v_new = moments(g, m, v)  # of the batch alone: the server's state stays
        above = g if optimizer == "adagrad" else m_new
        return above if optimizer == "momentum" else above / (np.sqrt(v_new) + tau)

    for t, (trained, arrived) in enumerate(clients, start=1):
        told = [i for i in trained if i not in LOST_QUESTIONS.get(t, ())] if corrected else arrived
        c = np.mean([clients.at(i, x) for i in told], axis=0)
        shift = lambda i: c - clients.at(i, x) if corrected else 0.0  # noqa: E731
        ends = {i: clients.descend(i, x, lambda g, w, i=i: step(g + shift(i), w)) for i in trained}
        m, v = moments(c, m, v)
        x = x + eta * mean({i: ends[i] - x for i in arrived}, arrived)
        yield x, x


class Keeps(FedAvgClient):
    @staticmethod
    def local_entries(model):
        return {"bias"}


def ours(name, rounds, objective=None, server=None, training=None, **settings):
    """The model that is sent next and the one that counts, after each round."""
    rule = STRATEGIES[name](min_available_nodes=1, **(server or {}))
    memories = [ContextStore() for _ in range(CLIENTS)]
    sent = {"weight": START[None]}
    initial = sent | {"bias": np.array([OWN])}
    for t, (trained, arrived) in enumerate(rounds, start=1):

        def client(message, i):
            if i not in trained:
                return None
            own = Examples({"x": A[i], "y": B[i][:, None]}, np.arange(EXAMPLES[i]))
            model = torch.nn.Linear(SIZE, 1).double()
            local = LocalTraining(STEPS[i], batch_size=0, **(training or {}))
            kind = OBJECTIVES[objective or name]
            task = LocalTask(model, initial, own, {}, local, (0, i), kind, Regression())
            memory = Memory(memories[i])
            reply = answered(message, Keeps(task, memory), settings | {"client-lr": LR, "eval-splits": ""})
            memory.commit()
            asked = message.metadata.message_type == "evaluate"
            lost = i in LOST_QUESTIONS.get(t, ()) if asked else i not in arrived
            return None if lost else reply

        rule.node_choice = lambda partitions, _: [p for p in partitions if p in trained]
        updated, _ = train(rule, sent, CannedGrid(CLIENTS, client), t)
        sent = ndarrays(updated)
        yield sent["weight"][0], ndarrays(rule.counted(updated))["weight"][0]


MOMENTUM = {"momentum": 0.9, "weight_decay": 0.1}
CASES = {
    "fednova with fedprox": (partial(fednova, mu=0.3), {"objective": "fedprox", "mu": 0.3}),
    "fednova with fedprox of no weight and momentum": (
        partial(fednova, momentum=0.9), {"objective": "fedprox", "mu": 0.0, "training": {"momentum": 0.9}},
    ),
    "scaffold": (scaffold, {}),
    "scaffold of nine": (partial(scaffold, total=9), {"server": {"num_clients": 9}}),
    "scaffold-momentum": (
        partial(scaffold, momentum=0.9, decay=0.1, by_examples=True),
        {"client-momentum": 0.9, "training": MOMENTUM},
    ),
    "fedcm": (fedcm, {"cm-alpha": 0.3}),
    "fedcm with eta": (partial(fedcm, eta=0.1), {"server": {"eta": 0.1}, "cm-alpha": 0.3}),
    "fedacg": (fedacg, {"acg-beta": 0.2}),
    "feddc of nine": (feddc, {"server": {"num_clients": 9}, "dc-alpha": 0.2}),
    "feddyn": (feddyn, {"server": {"alpha": 0.4}, "alpha": 0.4}),
    "feddyn of nine": (
        partial(feddyn, total=9), {"server": {"alpha": 0.4, "num_clients": 9}, "alpha": 0.4},
    ),
    "fedavg with fedspeed": (
        fedspeed, {"objective": "fedspeed", "rho": 0.2, "speed-alpha": 0.7, "speed-lambda": 4.0},
    ),
    "fedsmoo of nine": (
        fedsmoo, {"server": {"rho": 0.2, "beta": 5.0, "num_clients": 9}, "rho": 0.2, "smoo-beta": 5.0},
    ),
    "fedadmm": (fedadmm, {"admm-rho": 0.4}),
    "fedadmm with eta": (partial(fedadmm, eta=0.5), {"server": {"eta": 0.5}, "admm-rho": 0.4}),
    **{
        f"{name} with {one}": (
            partial(mimelite, optimizer=one, corrected=name == "mime"),
            {
                "server": {"optimizer": one, "beta_1": 0.8, "beta_2": 0.7, "eta": 0.5},
                "mime-optimizer": one,
                "mime-beta-1": 0.8,
                "mime-beta-2": 0.7,
                "mime-tau": 0.1,
            },
        )
        for name, one in (*product(["mimelite"], ["momentum", "adam", "adagrad"]), ("mime", "adam"))
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_three_rounds_by_the_paper(case):
    written, settings = CASES[case]
    found = zip(written(Written(ROUNDS)), ours(case.split()[0], ROUNDS, **settings), strict=True)
    for t, (expected, got) in enumerate(found, start=1):
        for one, other in zip(expected, got, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-9, err_msg=f"round {t}")


@pytest.mark.parametrize("name", ["fedcm", "feddc", "fedadmm", "mimelite"])
def test_an_answer_without_what_the_rule_needs_does_not_count(name):
    def client(message, i):
        metrics = MetricRecord({"num-examples": 1, "local-steps": 5})
        return type(message)(
            RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message
        )

    rule, grid = STRATEGIES[name](), CannedGrid(2, client)
    messages = rule.configure_train(1, record({"w": START}), ConfigRecord(), grid)
    with pytest.raises(Exception, match="local-length|control|augmented|gradient"):
        rule.aggregate_train(1, grid.send_and_receive(messages))


def test_without_an_answer_to_its_question_mime_asks_nobody_to_train():
    """Then the model stays; the next round is like any other."""
    rule = STRATEGIES["mime"]()
    deaf = CannedGrid(2, lambda message, i: None)
    assert list(rule.configure_train(1, record({"w": START}), ConfigRecord(), deaf)) == []
    assert rule.aggregate_train(1, []) == (None, None)
    assert rule.phase_report.failures == dict.fromkeys((0, 1), f"question: {NO_ANSWER}")
    rule.node_choice = lambda partitions, _: []
    assert list(rule.configure_train(2, record({"w": START}), ConfigRecord(), deaf)) == []
    assert rule.aggregate_train(2, []) == (None, None)
    assert not rule.phase_report.failures  # nobody was asked
    rule.node_choice = None
    answers = {"v": START}, {"w": START[:2]}, {"w": START * np.nan}, {"w": START}  # the last one is right

    def client(message, i):
        content = {"gradient": record(answers[i]), "metrics": MetricRecord({"num-examples": 1})}
        return type(message)(RecordDict(content), reply_to=message)

    messages = list(rule.configure_train(3, record({"w": START}), ConfigRecord(), CannedGrid(4, client)))
    assert len(messages) == 4
    for message in messages:
        np.testing.assert_array_equal(ndarrays(message.content["gradient"])["w"], START)
        assert "asked" not in message.content["config"]
    lost = CannedGrid(4, lambda message, i: None if i == 2 else train_reply(message, {"w": START}))
    rule.aggregate_train(3, lost.send_and_receive(messages))
    assert list(rule.phase_report.metrics) == [0, 1, 3]
    reasons = rule.phase_report.failures
    assert {i: reason.partition(":")[0] for i, reason in reasons.items()} == {
        0: "question", 1: "question", 2: NO_ANSWER
    }  # fmt: skip

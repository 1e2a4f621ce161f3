"""FedCM, FedACG, FedDC, FedADMM, MimeLite, Mime, both halves, on quadratics: each paper's algorithm in NumPy.

Client i has f_i(w) = |A_i w - b_i|^2 / 2 and takes K_i gradient steps. In some rounds clients are missing, or
train and their answer is lost. Then FedDyn, FedSMOO, SCAFFOLD, FedNova: two clients and two rounds by hand.
"""

# ruff: noqa: B023, each function is called in its round

from itertools import product

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict

from clients import OBJECTIVES
from clients.objectives import Local, LocalWork
from strategies import STRATEGIES, FedDyn, FedNova, FedSMOO, Scaffold, ScaffoldMomentum
from strategies.messages.replies import NO_ANSWER

from ...quick import some_quick
from ..helpers import CannedGrid, ndarrays, record, train, train_reply

CLIENTS, SIZE, LR = 4, 3, 0.05
RNG = np.random.default_rng(7)
A, B = RNG.normal(size=(CLIENTS, SIZE, SIZE)), RNG.normal(size=(CLIENTS, SIZE))
START = RNG.normal(size=SIZE)
STEPS = (3, 3, 5, 2)
ROUNDS = [  # who trains, and whose answer arrives
    ((0, 1, 2, 3), (0, 1, 2, 3)),
    ((0, 2, 3), (0, 3)),
    ((1, 2), (1, 2)),
    ((0, 1, 3), (0, 1, 3)),
]
ALL = [(tuple(range(CLIENTS)),) * 2] * 4


def gradient(i, w):
    return A[i].T @ (A[i] @ w - B[i])


def descend(i, start, corrected):
    w = start.copy()
    for _ in range(STEPS[i]):
        w = w - LR * corrected(gradient(i, w), w)
    return w


def fedcm(rounds, a=0.3, eta=0.0):
    x, d = START.copy(), np.zeros(SIZE)
    for trained, arrived in rounds:
        ends = {i: descend(i, x, lambda g, w: a * g + (1 - a) * d) for i in trained}
        d_new = np.mean([(x - ends[i]) / (LR * STEPS[i]) for i in arrived], axis=0)
        x = x - (eta or np.mean([LR * STEPS[i] for i in arrived])) * d_new
        d = d_new
        yield x, x


def fedacg(rounds, lam=0.85, beta=0.2):
    x, m = START.copy(), np.zeros(SIZE)
    for trained, arrived in rounds:
        sent = x + lam * m
        ends = {i: descend(i, sent, lambda g, w: g + beta * (w - sent)) for i in trained}
        m = lam * m + np.mean([ends[i] - sent for i in arrived], axis=0)
        x = x + m
        yield x + lam * m, x


def feddc(rounds, alpha=0.2):
    x, c = START.copy(), np.zeros(SIZE)
    h, c_i, known = np.zeros((CLIENTS, SIZE)), np.zeros((CLIENTS, SIZE)), np.zeros((CLIENTS, SIZE))
    for trained, arrived in rounds:
        ends, change = {}, {}
        for i in trained:
            ends[i] = descend(i, x, lambda g, w, i=i: g + alpha * (w + h[i] - x) + c - c_i[i])
            change[i] = -c + (x - ends[i]) / (STEPS[i] * LR)
        for i in trained:
            h[i] += ends[i] - x
            c_i[i] += change[i]
        for i in arrived:
            known[i] += ends[i] - x  # the server's view of the drifts: without lost answers it is h
        x = np.mean([ends[i] for i in arrived], axis=0) + known.mean(axis=0)
        c = c + sum(change[i] for i in arrived) / CLIENTS
        yield x, x


def fedadmm(rounds, rho=0.4, eta=1.0):
    x, y = START.copy(), np.zeros((CLIENTS, SIZE))
    local = np.tile(START, (CLIENTS, 1))
    for trained, arrived in rounds:
        change = {}
        for i in trained:
            before = local[i] + y[i] / rho
            local[i] = descend(i, x, lambda g, w, i=i: g + y[i] + rho * (w - x))
            y[i] = y[i] + rho * (local[i] - x)
            change[i] = local[i] + y[i] / rho - before
        x = x + eta * np.mean([change[i] for i in arrived], axis=0)
        yield x, x


LOST_QUESTIONS = {2: {2}, 4: {0}}
"""By round, whose answer to the question before the training is lost; both train, and one answer counts."""


def mimelite(rounds, optimizer, b1=0.8, b2=0.7, tau=0.1, eta=0.5, corrected=False):
    x, m, v = START.copy(), np.zeros(SIZE), np.zeros(SIZE)

    def moments(g, m, v):
        return b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2 if optimizer == "adam" else v + g**2

    def step(g, w):
        m_new, v_new = moments(g, m, v)  # of the batch alone: the server's state stays
        above = g if optimizer == "adagrad" else m_new
        return above if optimizer == "momentum" else above / (np.sqrt(v_new) + tau)

    for t, (trained, arrived) in enumerate(rounds, start=1):
        told = [i for i in trained if i not in LOST_QUESTIONS.get(t, ())] if corrected else arrived
        c = np.mean([gradient(i, x) for i in told], axis=0)
        shift = {i: c - gradient(i, x) if corrected else 0.0 for i in trained}
        ends = {i: descend(i, x, lambda g, w, i=i: step(g + shift[i], w)) for i in trained}
        m, v = moments(c, m, v)
        x = x + eta * np.mean([ends[i] - x for i in arrived], axis=0)
        yield x, x


def feddyn(rounds, alpha=0.4):
    x, h, g_i = START.copy(), np.zeros(SIZE), np.zeros((CLIENTS, SIZE))
    for trained, _ in rounds:
        ends = np.array([descend(i, x, lambda g, w, i=i: g - g_i[i] + alpha * (w - x)) for i in trained])
        g_i -= alpha * (ends - x)
        h -= alpha * np.mean(ends - x, axis=0)
        x = ends.mean(axis=0) - h / alpha
        yield x, x


def ours(name, rounds, at_server, at_client, objective=None):
    """The model that is sent next and the one that counts, after each round."""
    rule = STRATEGIES[name](min_available_nodes=1, **at_server)
    memories, sent = {}, {"w": START.astype(np.float32)}
    for t, (trained, arrived) in enumerate(rounds, start=1):

        def client(message, i, t=t, trained=trained, arrived=arrived):
            if i not in trained:
                return None
            x = ndarrays(message.content["arrays"])
            received = {n: ndarrays(r) for n, r in message.content.array_records.items() if n != "arrays"}
            w = torch.tensor(x["w"], requires_grad=True)
            initial = {"w": START.astype(np.float32)}
            local = Local(torch.nn.Identity(), None, lambda *_: None, initial=initial)
            kind, start = OBJECTIVES[objective or name], x["w"].astype(float)
            full = {"w": torch.tensor(gradient(i, start), dtype=torch.float32)}
            if name in ("mimelite", "mime"):
                kind = type("Quadratic", (kind,), {"full_gradient": lambda _, full=full: full})
            made = kind({"w": w}, at_client, memories.get(i), received, None, local)
            if message.metadata.message_type == "evaluate":
                assert message.content["config"]["asked"] == "gradient"
                answer = {n: record(arrays) for n, arrays in made.first_answer().items()}
                content = RecordDict({**answer, "metrics": MetricRecord({"num-examples": 1 + 9 * i})})
                lost = i in LOST_QUESTIONS.get(t, ())
                return None if lost else type(message)(content, reply_to=message)
            made.of_batch = full
            for _ in range(STEPS[i]):
                w.grad = torch.tensor(gradient(i, w.detach().double().numpy()), dtype=torch.float32)
                made.correct_gradients()
                w.data -= LR * w.grad
            outcome = made.finish(LocalWork(STEPS[i], LR))
            memories[i] = outcome.memory
            metrics = {"num-examples": 1 + 9 * i, "local-steps": STEPS[i], **outcome.metrics}
            content = {"arrays": record({"w": w.detach().numpy()}), "metrics": MetricRecord(metrics)}
            content |= {n: record(arrays) for n, arrays in outcome.records.items()}
            return type(message)(RecordDict(content), reply_to=message) if i in arrived else None

        grid = CannedGrid(CLIENTS, client)
        rule.node_choice = lambda partitions, _, trained=trained: [p for p in partitions if p in trained]
        updated, _ = train(rule, sent, grid, t)
        sent = ndarrays(updated)
        yield sent["w"], ndarrays(rule.counted(updated))["w"]


UNIFORM = {"weighted_by_key": None}
CASES = {
    "fedcm": (fedcm, {}, {"share": 0.3}),
    "fedcm with eta": (lambda rounds: fedcm(rounds, eta=0.1), {"eta": 0.1}, {"share": 0.3}),
    "fedacg": (fedacg, UNIFORM, {"beta": 0.2}),
    "feddc": (feddc, {}, {"alpha": 0.2}),
    "fedadmm": (fedadmm, {}, {"rho": 0.4}),
    **{
        f"{name} with {one}": (
            lambda rounds, name=name, one=one: mimelite(rounds, one, corrected=name == "mime"),
            {"optimizer": one, "beta_1": 0.8, "beta_2": 0.7, "eta": 0.5},
            {"optimizer": one, "beta_1": 0.8, "beta_2": 0.7, "tau": 0.1},
        )
        for name in ("mimelite", "mime")
        for one in ("momentum", "adam", "adagrad")
    },
    "fedadmm with eta": (lambda rounds: fedadmm(rounds, eta=0.5), {"eta": 0.5}, {"rho": 0.4}),
}


@pytest.mark.parametrize(
    ("case", "rounds"), some_quick([*product(CASES, [ROUNDS, ALL])], range(0, 2 * len(CASES), 2))
)
def test_four_rounds_by_the_paper(case, rounds):
    written, at_server, at_client = CASES[case]
    for t, (expected, got) in enumerate(
        zip(written(rounds), ours(case.split()[0], rounds, at_server, at_client), strict=True), start=1
    ):
        for one, other in zip(expected, got, strict=True):
            np.testing.assert_allclose(other, one, atol=3e-5, err_msg=f"round {t}")


def test_fedadmm_with_all_clients_is_feddyn():
    """eta 1, rho = alpha: y_i = -g_i, and the mean of x_i + y_i / rho is the mean of the x_i less h / alpha.

    The authors' code sends 2 (x_i - x), which is that in the first round only.
    """
    expected = [x for x, _ in feddyn(ALL)]
    admm = [x for x, _ in ours("fedadmm", ALL, {}, {"rho": 0.4})]
    dyn = [x for x, _ in ours("feddyn", ALL, {"alpha": 0.4}, {"alpha": 0.4})]
    np.testing.assert_allclose(admm, expected, atol=3e-5)
    np.testing.assert_allclose(dyn, expected, atol=3e-5)


def test_a_client_of_fedadmm_that_joins_late_has_the_initial_model_behind_it():
    """u_i is the initial model then: with eta = n / M the model stays the mean of all u_i."""
    rounds = [((0, 1), (0, 1)), ((2, 3), (2, 3))]
    got = [x for x, _ in ours("fedadmm", rounds, {"eta": 0.5}, {"rho": 0.4})]
    expected = [x for x, _ in fedadmm(rounds, eta=0.5)]
    np.testing.assert_allclose(got, expected, atol=3e-5)


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


def two_rounds(strategy, answer, start=0.0, clients=2):
    """The scalar model after each of two rounds; ``answer(message, partition, x, t)`` replies."""
    x, found = np.full(1, start, np.float32), []
    for t in (1, 2):
        grid = CannedGrid(clients, lambda m, i, x=x, t=t: answer(m, i, x, t))
        updated, _ = train(strategy, {"w": x}, grid, t)
        if updated is not None:
            x = ndarrays(updated)["w"]
        found.append(float(x[0]))
    return found


def test_feddyn_takes_m_from_the_nodes_and_the_mean_over_those_that_answered():
    """M = 2 nodes, only the first answers: h = -0.5/2 * 1 = -0.25; x = 1 + 0.5 = 1.5.."""
    strategy = FedDyn(alpha=0.5)

    def answer(message, partition, x, t):
        if partition == 0 and t == 1:
            return train_reply(message, {"w": x + 1})
        return Message(Error(0, "lost"), reply_to=message)

    assert two_rounds(strategy, answer) == pytest.approx([1.5, 1.5], abs=1e-6)
    np.testing.assert_allclose(strategy.rule_state.vectors["h"], -0.25, atol=1e-6)


@pytest.mark.parametrize(("rule", "models"), [(Scaffold, [2.0, 4.0]), (ScaffoldMomentum, [1.5, 3.0])])
def test_scaffold_by_hand(rule, models):
    """eta 1, M 4: x moves by the plain mean (1 + 3)/2 = 2 a round, in the code of NIID-Bench by that weighed
    by 300 and 100 examples, 1.5; c by (0.4 + 0.8)/4 = 0.3 from 0 in both."""
    strategy, sent = rule(num_clients=4), []

    def answer(message, partition, x, t):
        if partition == 0:
            sent.append(float(message.content["control"]["w"].numpy()[0]))
        reply = train_reply(message, {"w": x + (1, 3)[partition]}, (300, 100)[partition])
        reply.content["control"] = record({"w": np.full(1, (0.4, 0.8)[partition], np.float32)})
        return reply

    assert two_rounds(strategy, answer) == pytest.approx(models, abs=1e-6)
    assert sent == pytest.approx([0.0, 0.3], abs=1e-6)
    np.testing.assert_allclose(strategy.rule_state.vectors["c"], 0.6, atol=1e-6)


def test_fedsmoo_by_hand():
    """beta 2, rho 0.5, M 4; models x + 1 and x + 3, and (3, 4) and (-1, 0) as the parts of s: mean (1, 2).

    h and x are FedDyn's with alpha 1/2: x = 3, then 7. s = 0 at first, then 0.5 (1, 2) / sqrt(5).
    """
    strategy, sent = FedSMOO(beta=2.0, rho=0.5, num_clients=4), []

    def answer(message, partition, x, t):
        if partition == 0:
            sent.append(message.content["perturbation"]["w"].numpy())
        reply = train_reply(message, {"w": x + (1, 3)[partition]}, (1, 1000)[partition])
        part = ((3.0, 4.0), (-1.0, 0.0))[partition]
        reply.content["perturbation"] = record({"w": np.array(part, np.float32)})
        return reply

    x, found = np.zeros(2, np.float32), []
    for t in (1, 2):
        grid = CannedGrid(2, lambda m, i, x=x, t=t: answer(m, i, x, t))
        updated, _ = train(strategy, {"w": x}, grid, t)
        x = ndarrays(updated)["w"]
        found.append(x.tolist())
    np.testing.assert_allclose(found, [[3, 3], [7, 7]], atol=1e-6)
    np.testing.assert_allclose(sent, [[0, 0], np.array([0.5, 1.0]) / np.sqrt(5)], atol=1e-6)


@pytest.mark.parametrize("control", [None, np.full(1, np.nan, np.float32), np.ones(2, np.float32)])
def test_scaffold_drops_an_answer_whose_control_variate_cannot_be_used(control):
    strategy = Scaffold()

    def answer(message, partition, x, t):
        reply = train_reply(message, {"w": x + 1})
        if partition == 1:
            del reply.content["control"]
            if control is not None:
                reply.content["control"] = record({"w": control})
        return reply

    assert two_rounds(strategy, answer) == pytest.approx([1.0, 2.0], abs=1e-6)
    assert list(strategy.phase_report.failures) == [1]
    np.testing.assert_array_equal(strategy.rule_state.vectors["c"], 0.0)


def test_fednova_counts_momentum_steps():
    """rho 0.5, K 2: the last gradient counts once, the first 1.5 times: a = 2.5. K 1: a = 1.

    p = 1/2: sum p d/a = (5/2.5 + 3)/2 = 2.5, tau = 1.75: step 4.375.
    """
    answer = lambda m, i, x, t: train_reply(m, {"w": x + (5, 3)[i]}, 1, **{"local-steps": (2, 1)[i]})  # noqa: E731
    assert two_rounds(FedNova(client_momentum=0.5), answer)[0] == pytest.approx(4.375, rel=1e-6)


def test_scaffold_momentum_weighs_batch_norm_statistics_like_parameters():
    """Clients of 23, 41, 12 and 30 examples: all of the model is the mean by examples, c the plain one."""
    examples = np.array([23.0, 41.0, 12.0, 30.0])
    rng = np.random.default_rng(5)
    weights, means, changes = rng.normal(size=(3, 4, 6))
    start = {"w": np.zeros(6, np.float32), "bn.running_mean": np.ones(6, np.float32)}

    def answer(message, i):
        arrays = {"w": weights[i].astype(np.float32), "bn.running_mean": means[i].astype(np.float32)}
        reply = train_reply(message, arrays, examples[i])
        reply.content["control"] = record({"w": changes[i].astype(np.float32)})
        return reply

    strategy, grid = ScaffoldMomentum(num_clients=10), CannedGrid(4, answer)
    got = ndarrays(train(strategy, start, grid)[0])
    np.testing.assert_allclose(got["w"], examples @ weights / 106, atol=1e-6)
    np.testing.assert_allclose(got["bn.running_mean"], examples @ means / 106, atol=1e-6)
    np.testing.assert_allclose(strategy.rule_state.vectors["c"], changes.sum(0) / 10, atol=1e-6)

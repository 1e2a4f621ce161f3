"""FedDyn, FedSMOO, SCAFFOLD, FedNova: two clients and two rounds by hand."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message

from strategies import FedAvg, FedDyn, FedNova, FedSMOO, Scaffold, ScaffoldMomentum

from ..helpers import CannedGrid, ndarrays, record, train_reply


def two_rounds(strategy, answer, start=0.0, clients=2):
    """The scalar model after each of two rounds; ``answer(message, partition, x, t)`` replies."""
    x, found = np.full(1, start, np.float32), []
    for t in (1, 2):
        grid = CannedGrid(clients, lambda m, i, x=x, t=t: answer(m, i, x, t))
        messages = strategy.configure_train(t, record({"w": x}), ConfigRecord(), grid)
        updated, _ = strategy.aggregate_train(t, grid.send_and_receive(messages))
        if updated is not None:
            x = ndarrays(updated)["w"]
        found.append(float(x[0]))
    return found


def test_feddyn_by_hand():
    """alpha 0.5, M 4, clients answer x + 1 and x + 3 with very unequal numbers of examples.

    Round 1: h = 0 - 0.5/4 (1 + 3) = -0.5; x = (0 + 2) + 0.5/0.5 = 3.
    Round 2: h = -0.5 - 0.5 = -1; x = (3 + 2) + 1/0.5 = 7.
    """
    strategy = FedDyn(alpha=0.5, num_clients=4)
    got = two_rounds(strategy, lambda m, i, x, t: train_reply(m, {"w": x + (1, 3)[i]}, (1, 1000)[i]))
    assert got == pytest.approx([3.0, 7.0], abs=1e-6)
    np.testing.assert_allclose(strategy.rule_state.vectors["h"], -1.0, atol=1e-6)


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
        messages = strategy.configure_train(t, record({"w": x}), ConfigRecord(), grid)
        updated, _ = strategy.aggregate_train(t, grid.send_and_receive(messages))
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


def test_fednova_by_hand():
    """n = (3, 1), K = (10, 2), differences (5, 4): sum p d/K = 0.75 0.5 + 0.25 2 = 0.875; tau = 8; step 7."""
    answer = lambda m, i, x, t: train_reply(m, {"w": x + (5, 4)[i]}, (3, 1)[i], **{"local-steps": (10, 2)[i]})  # noqa: E731
    assert two_rounds(FedNova(), answer) == pytest.approx([7.0, 14.0], rel=1e-6)


def test_fednova_counts_momentum_steps():
    """rho 0.5, K 2: the last gradient counts once, the first 1.5 times: a = 2.5. K 1: a = 1.

    p = 1/2: sum p d/a = (5/2.5 + 3)/2 = 2.5, tau = 1.75: step 4.375.
    """
    answer = lambda m, i, x, t: train_reply(m, {"w": x + (5, 3)[i]}, 1, **{"local-steps": (2, 1)[i]})  # noqa: E731
    assert two_rounds(FedNova(client_momentum=0.5), answer)[0] == pytest.approx(4.375, rel=1e-6)


def test_fednova_is_fedavg_where_all_do_as_much():
    answer = lambda m, i, x, t: train_reply(m, {"w": x + (5, 4)[i]}, (3, 1)[i])  # noqa: E731
    assert two_rounds(FedNova(), answer) == pytest.approx(two_rounds(FedAvg(), answer), rel=1e-6)


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
    messages = strategy.configure_train(1, record(start), ConfigRecord(), grid)
    got = ndarrays(strategy.aggregate_train(1, grid.send_and_receive(messages))[0])
    np.testing.assert_allclose(got["w"], examples @ weights / 106, atol=1e-6)
    np.testing.assert_allclose(got["bn.running_mean"], examples @ means / 106, atol=1e-6)
    np.testing.assert_allclose(strategy.rule_state.vectors["c"], changes.sum(0) / 10, atol=1e-6)

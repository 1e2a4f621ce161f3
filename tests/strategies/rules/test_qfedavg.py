"""q-FedAvg against Algorithm 2 of Li et al. 2020, written out client by client; what it is with q = 0."""

import numpy as np
import pytest
from flwr.app import ConfigRecord

from strategies import QFedAvg

from ..helpers import CannedGrid, ndarrays, record, train_reply

LR = 0.25


def written(x, models, losses, q):
    """The paper's lines: Dw_k = L (w - w_k), D_k = F^q Dw_k, h_k = q F^(q-1) |Dw_k|^2 + L F^q."""
    lipschitz, total, h = 1 / LR, np.zeros_like(x), 0.0
    for model, loss in zip(models, losses, strict=True):
        gradient = lipschitz * (x - model)
        total += loss**q * gradient
        h += q * loss ** (q - 1) * float(gradient @ gradient) + lipschitz * loss**q
    return x - total / h


def a_round(strategy, t, x, models, losses, who, key="start-loss"):
    """The next x, where only ``who`` of the clients answer."""

    def client(message, i):
        assert message.content["config"]["start-loss"] is True
        metrics = {key: losses[i]} if key == "start-loss" else {"start-loss": losses[i], key: losses[i]}
        reply = train_reply(message, {"w": models[i].astype(np.float32).reshape(2, 3)}, 1 + 10 * i, **metrics)
        if key != "start-loss":
            del reply.content["metrics"]["start-loss"]
        return reply if i in who else None

    grid = CannedGrid(len(models), client)
    sent = record({"w": x.astype(np.float32).reshape(2, 3)})
    messages = strategy.configure_train(t, sent, ConfigRecord(), grid)
    return ndarrays(strategy.aggregate_train(t, grid.send_and_receive(messages))[0])["w"].ravel()


@pytest.mark.parametrize("q", [0.0, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("key", ["start-loss", "train_loss"])
def test_three_rounds_of_which_clients_are_missing(q, key):
    """Numbers of examples, from 1 to 31, play no part."""
    rng = np.random.default_rng(3)
    strategy = QFedAvg(client_learning_rate=LR, q=q)
    x = y = rng.normal(size=6)
    for t, who in enumerate([[0, 1, 2, 3], [0, 2, 3], [1]], start=1):
        models, losses = x + rng.normal(scale=0.3, size=(4, 6)), rng.uniform(0.1, 3, size=4)
        x = a_round(strategy, t, x, models, losses, who, key)
        y = written(y, models[who], losses[who], q)
        np.testing.assert_allclose(x, y, atol=2e-6)
        y = x.astype(float)


def test_with_q_zero_it_is_the_plain_mean():
    models = np.array([[1.0] * 6, [4.0] * 6])
    got = a_round(QFedAvg(client_learning_rate=LR, q=0), 1, np.zeros(6), models, [0.2, 9.0], [0, 1])
    np.testing.assert_allclose(got, 2.5, atol=1e-6)


def test_a_greater_loss_draws_the_model_nearer():
    models, shares = np.array([[1.0] * 6, [-1.0] * 6]), []
    for q in (0, 1, 4):
        got = a_round(QFedAvg(client_learning_rate=LR, q=q), 1, np.zeros(6), models, [2.0, 1.0], [0, 1])
        shares.append(float(got[0]))
    assert shares[0] == pytest.approx(0)
    assert min(shares[1:]) > 0


def test_a_loss_of_zero_has_a_power():
    models = np.array([[1.0] * 6] * 2)
    got = a_round(QFedAvg(client_learning_rate=LR, q=0.1), 1, np.zeros(6), models, [0.0, 0.0], [0])
    assert np.isfinite(got).all()


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (-1.0, "'start-loss' is -1.0, not a finite number >= 0"),
        (float("nan"), "'start-loss' is nan"),
        (float("inf"), "'start-loss' is inf"),
        ([1.0], "'start-loss' is missing from the metrics, or no number"),
        (1e200, "whose power 2.0 is too large"),
        (1e18, "whose power 2.0 is too large"),
        (None, "'train_loss' is missing from the metrics"),
    ],
)
def test_a_loss_that_cannot_be_used_drops_the_answer(loss, words):
    def client(message, i):
        reply = train_reply(message, {"w": np.ones(1, np.float32)}, 1, **{"start-loss": loss if i else 1.0})
        return reply

    def without(message, i):
        reply = train_reply(message, {"w": np.ones(1, np.float32)})
        if i:
            del reply.content["metrics"]["start-loss"]
        return reply

    rule = QFedAvg(client_learning_rate=LR, q=2.0)
    grid = CannedGrid(2, without if loss is None else client)
    messages = rule.configure_train(1, record({"w": np.zeros(1, np.float32)}), ConfigRecord(), grid)
    rule.aggregate_train(1, grid.send_and_receive(messages))
    assert list(rule.phase_report.failures) == [1]
    assert words in rule.phase_report.failures[1]


def test_statistics_are_averaged_plainly():
    """Flower's steps them like weights; here they are the clients' plain mean, whatever the losses."""
    start = {"w": np.zeros(2, np.float32), "bn.running_var": np.ones(2, np.float32)}

    def client(message, i):
        arrays = {"w": np.full(2, i, np.float32), "bn.running_var": np.full(2, 2 + 4 * i, np.float32)}
        return train_reply(message, arrays, 1 + i, **{"start-loss": 1.0 + 5 * i})

    rule, grid = QFedAvg(client_learning_rate=LR, q=3.0), CannedGrid(2, client)
    messages = rule.configure_train(1, record(start), ConfigRecord(), grid)
    got = ndarrays(rule.aggregate_train(1, grid.send_and_receive(messages))[0])
    np.testing.assert_allclose(got["bn.running_var"], 4.0)


@pytest.mark.parametrize("arguments", [{"q": -1}, {"client_learning_rate": 0}])
def test_arguments_out_of_range_are_refused_by_name(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        QFedAvg(**{"client_learning_rate": LR} | arguments)


def test_the_learning_rate_is_needed():
    with pytest.raises(TypeError, match="missing a required argument: 'client_learning_rate'"):
        QFedAvg()

"""FedExP against equation 7 of Jhunjhunwala et al. 2023, written out; which model counts."""

import numpy as np
import pytest
from flwr.app import ConfigRecord

from strategies import FedAvg, FedExP

from ..helpers import CannedGrid, ndarrays, record, train_reply

SIZES = [3, 1, 4, 1]


def a_round(strategy, t, x, differences, who, sizes=SIZES, names=("w",)):
    """What is sent next, and what counts."""

    def client(message, i):
        arrays = {n: (a + differences[i].reshape(a.shape)).astype(np.float32) for n, a in sent.items()}
        return train_reply(message, arrays, sizes[i]) if i in who else None

    sent = {name: x.astype(np.float32).reshape(2, 3) for name in names}
    grid = CannedGrid(len(differences), client)
    messages = strategy.configure_train(t, record(sent), ConfigRecord(), grid)
    updated, _ = strategy.aggregate_train(t, grid.send_and_receive(messages))
    return ndarrays(updated)["w"].ravel(), ndarrays(strategy.counted(updated))["w"].ravel()


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.5])
def test_three_rounds_of_which_clients_are_missing(epsilon):
    rng = np.random.default_rng(5)
    strategy, x = FedExP(epsilon=epsilon), rng.normal(size=6)
    for t, who in enumerate([[0, 1, 2, 3], [0, 2, 3], [1, 2]], start=1):
        deltas = rng.normal(scale=0.3, size=(4, 6))
        p = np.array([SIZES[i] for i in who]) / sum(SIZES[i] for i in who)
        mean = p @ deltas[who]
        squares = p @ (deltas[who] ** 2).sum(axis=1)
        eta = max(1.0, squares / (2 * (mean @ mean + epsilon)))
        if t == 1 and not epsilon:
            assert eta > 1.1
        expected = x + eta * mean
        sent, counted = a_round(strategy, t, x, deltas, who)
        np.testing.assert_allclose(sent, expected, atol=3e-6)
        np.testing.assert_allclose(counted, (x + expected) / 2, atol=3e-6)
        x = sent.astype(float)


def test_clients_that_agree_make_fedavg_of_it():
    """The squares are |D|^2 then: eta would be 1/2, and is 1."""
    deltas = np.tile(np.linspace(-1, 1, 6), (4, 1))
    exp, avg = (a_round(rule(), 1, np.zeros(6), deltas, range(4))[0] for rule in (FedExP, FedAvg))
    np.testing.assert_allclose(exp, avg, rtol=1e-6)


def test_clipped_updates_are_clipped_in_the_squares_too():
    """Two of norm 3 and 5, clipped to 1: D of opposite ones is 0.1, so eta is 1 / (2 0.01) = 50."""
    away = np.eye(6)
    deltas = np.array([3 * away[0], 5 * (0.98**0.5 * away[1] + 0.02**0.5 * away[0])])
    strategy = FedExP(epsilon=0.0, clip_update_norm=1.0, weighted_by_key=None)
    sent, _ = a_round(strategy, 1, np.zeros(6), deltas, [0, 1], [1, 1])
    mean = (away[0] + 0.98**0.5 * away[1] + 0.02**0.5 * away[0]) / 2
    np.testing.assert_allclose(sent, max(1, 0.5 / (mean @ mean)) * mean, rtol=1e-5)


def test_a_tied_weight_counts_once():
    deltas = np.random.default_rng(2).normal(size=(3, 6))
    tied = FedExP(tied=[("v", "w")])
    two, _ = a_round(tied, 1, np.zeros(6), deltas, range(3), [1] * 3, ("v", "w"))
    one, _ = a_round(FedExP(), 1, np.zeros(6), deltas, range(3), [1] * 3)
    np.testing.assert_allclose(two, one, rtol=1e-5)


def test_without_an_update_the_step_is_none():
    sent, counted = a_round(FedExP(epsilon=0.0), 1, np.ones(6), np.zeros((2, 6)), [0, 1], [1, 1])
    np.testing.assert_array_equal(sent, 1)
    np.testing.assert_array_equal(counted, 1)


def test_before_the_first_round_the_model_counts_as_it_is():
    model = record({"w": np.ones(3, np.float32)})
    assert FedExP().counted(model) is model
    assert FedAvg().counted(model) is model

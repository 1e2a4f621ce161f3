"""TERM, AFL, FedDisco: weights of clients, each by the paper's formula, over rounds with lost answers."""

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.exception import AggregationError, InconsistentMessageReplies
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from strategies import AFL, TERM, FedAvg, FedDisco
from strategies.rules.fair import on_simplex

from ..helpers import CannedGrid, ndarrays, record, train_reply

SIZES = [3, 1, 4, 1]
WHO = [[0, 1, 2, 3], [0, 2, 3], [1, 2]]
RNG = np.random.default_rng(11)
DELTAS, LOSSES = RNG.normal(size=(3, 4, 6)), RNG.uniform(0.1, 2, size=(3, 4))


def a_round(strategy, t, x, who=range(4), deltas=None, losses=None):
    """The next model and its statistics, which clients answer as they do the weights."""
    deltas = DELTAS[t - 1] if deltas is None else deltas
    losses = LOSSES[t - 1] if losses is None else losses

    def client(message, i):
        arrays = {"w": (x + deltas[i]).astype(np.float32), "bn.running_mean": deltas[i].astype(np.float32)}
        return train_reply(message, arrays, SIZES[i], **{"start-loss": losses[i]}) if i in who else None

    grid = CannedGrid(4, client)
    sent = record({"w": x.astype(np.float32), "bn.running_mean": np.zeros(6, np.float32)})
    messages = strategy.configure_train(t, sent, ConfigRecord(), grid)
    updated, _ = strategy.aggregate_train(t, grid.send_and_receive(messages))
    if updated is None:
        return x
    got = ndarrays(updated)
    np.testing.assert_allclose(got["bn.running_mean"], (got["w"] - x) / strategy_eta(strategy), atol=1e-5)
    return got["w"].astype(float)


def strategy_eta(strategy):
    return getattr(strategy, "eta", getattr(strategy, "_eta_", 1.0))


@pytest.mark.parametrize("tilt", [-2.0, 0.0, 0.5, 20.0])
def test_term_weighs_by_the_exponential_of_the_loss(tilt):
    strategy, x = TERM(tilt=tilt), np.zeros(6)
    for t, who in enumerate(WHO, start=1):
        weights = np.array([SIZES[i] * np.exp(tilt * LOSSES[t - 1][i]) for i in who])
        expected = x + weights / weights.sum() @ DELTAS[t - 1][who]
        x = a_round(strategy, t, x, who)
        np.testing.assert_allclose(x, expected, atol=1e-5)


def test_term_steps_along_the_gradient_of_the_tilted_loss():
    """(1/t) log sum p_i e^(t F_i), F_i = |w - c_i|^2 / 2, by finite differences; D_i = -lr grad F_i."""
    centres, p, tilt, w = RNG.normal(size=(4, 6)), np.array(SIZES) / sum(SIZES), 1.5, np.full(6, 0.2)

    def losses(w):
        return ((w - centres) ** 2).sum(axis=1) / 2

    def tilted(w):
        return np.log(p @ np.exp(tilt * losses(w))) / tilt

    gradient = np.array([(tilted(w + h) - tilted(w - h)) / 2e-5 for h in 1e-5 * np.eye(6)])
    got = a_round(TERM(tilt=tilt), 1, w, deltas=-0.1 * (w - centres), losses=losses(w))
    np.testing.assert_allclose(got, w - 0.1 * gradient, atol=1e-5)


def test_a_tilt_beyond_float32_is_refused_in_words():
    with pytest.raises(InconsistentMessageReplies, match="tilt 100 is beyond 60: choose a smaller tilt"):
        a_round(TERM(tilt=100.0), 1, np.zeros(6), losses=np.full(4, 1.0))


@pytest.mark.parametrize("eta", [1.0, 0.5])
def test_afl_ascends_on_the_simplex(eta):
    """The projection as a quadratic programme; weights are those before the round's ascent."""
    strategy = AFL(eta=eta, gamma=0.3, num_clients=4, ask_partitions=True)
    x, weights = np.zeros(6), np.full(4, 0.25)
    for t, who in enumerate(WHO, start=1):
        used = weights[who]
        expected = x + eta * (used / used.sum()) @ DELTAS[t - 1][who]
        x = a_round(strategy, t, x, who)
        np.testing.assert_allclose(x, expected, atol=1e-5)
        raised = weights.copy()
        raised[who] += 0.3 * 4 / len(who) * LOSSES[t - 1][who]
        found = minimize(
            lambda v, raised=raised: ((v - raised) ** 2).sum(), weights, bounds=[(0, 1)] * 4, tol=1e-14,
            constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
        )  # fmt: skip
        weights = strategy.rule_state.vectors["client-weights"].copy()
        np.testing.assert_allclose(weights, found.x, atol=1e-5)


def test_afl_of_clients_without_weight_leaves_the_model():
    strategy = AFL(num_clients=4, ask_partitions=True)
    strategy.rule_state.vectors["client-weights"] = np.array([1.0, 0, 0, 0])
    np.testing.assert_array_equal(a_round(strategy, 1, np.ones(6), who=[1, 2]), 1)
    np.testing.assert_array_equal(strategy.rule_state.vectors["client-weights"], [1, 0, 0, 0])


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8))
def test_the_projection_is_on_the_simplex_and_the_nearest(values):
    v = np.array(values)
    got = on_simplex(v)
    assert got.min() >= 0
    assert got.sum() == pytest.approx(1)
    for corner in np.eye(len(v)):  # the angle at the projection is obtuse to every point of the simplex
        assert (v - got) @ (corner - got) <= 1e-6 * (1 + np.abs(v).max())


COUNTS = np.array([[3, 0, 0], [0, 1, 0], [2, 1, 1], [0, 0, 1]], float)


def disco(**settings):
    strategy = FedDisco(ask_partitions=True, **settings)
    strategy.rule_state.vectors["class-counts"] = COUNTS.copy()
    return strategy


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.1), (0.0, 0.0), (2.0, 0.5), (0.2, 0.0)])
def test_feddisco_weighs_by_size_and_distance(a, b):
    """The authors' lines; a lost answer leaves the weights of the others in their ratio."""
    overall = COUNTS.sum(0) / COUNTS.sum()
    distance = np.array([np.sqrt((((row / row.sum()) - overall) ** 2).sum()) for row in COUNTS])
    weights = np.maximum(np.array(SIZES) / sum(SIZES) - a * distance + b, 0)
    assert (weights > 0).sum() > 0
    strategy, x = disco(a=a, b=b), np.zeros(6)
    for t, who in enumerate(WHO, start=1):
        used = weights[who]
        expected = x + (used / used.sum() @ DELTAS[t - 1][who] if used.sum() else 0)
        x = a_round(strategy, t, x, who)
        np.testing.assert_allclose(x, expected, atol=1e-5)


def test_feddisco_where_no_weight_is_positive_is_fedavg():
    """The authors' code ends with an error there."""
    np.testing.assert_allclose(
        a_round(disco(a=100.0, b=0.0), 1, np.zeros(6)), a_round(FedAvg(), 1, np.zeros(6)), atol=1e-6
    )


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (AFL(ask_partitions=True), "AFL needs num_clients"),
        (AFL(num_clients=2, ask_partitions=True), "partition 2 is none of AFL's 2 clients"),
        (FedDisco(ask_partitions=True), "FedDisco needs rule_state.vectors"),
    ],
)
def test_what_has_to_be_known_is_asked_for(strategy, words):
    with pytest.raises(AggregationError, match=words):
        a_round(strategy, 1, np.zeros(6))

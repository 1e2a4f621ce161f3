"""FedPAC: its quadratic programme against a general solver, and a round by hand."""

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from strategies import FedPAC
from strategies.rules.personal import head_weights

from ..helpers import CannedGrid, ndarrays, record, train_reply


def objective(a, i, means, spreads):
    return a**2 @ spreads + np.sum((means[i] - a @ means) ** 2)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_the_weights_solve_the_quadratic_programme(n, seed):
    rng = np.random.default_rng(seed)
    means, spreads = rng.normal(size=(n, 5)), rng.uniform(0.01, 2, n)
    found = head_weights(means, spreads)
    assert np.all(found >= 0)
    np.testing.assert_allclose(found.sum(1), 1)
    for i in range(n):
        general = minimize(
            objective, np.full(n, 1 / n), (i, means, spreads), "SLSQP", bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1}, options={"ftol": 1e-12},
        )  # fmt: skip
        assert objective(found[i], i, means, spreads) <= general.fun * (1 + 1e-6) + 1e-9


def test_by_hand():
    """The same means: weights go as 1 / V. Far means: each keeps its own."""
    np.testing.assert_allclose(head_weights(np.ones((2, 3)), np.array([1.0, 3.0])), [[0.75, 0.25]] * 2)
    far = head_weights(np.array([[0.0], [1e6]]), np.array([1.0, 3.0]))
    np.testing.assert_allclose(far, np.eye(2), atol=1e-9)


START = {"body": np.zeros(2, np.float32), "head": np.zeros(2, np.float32)}


def answer_of(i, message, features):
    sent = ndarrays(message.content["arrays"])
    new = {"body": sent["body"] + np.float32(i + 1), "head": sent["head"] + np.float32(10 * (i + 1))}
    reply = train_reply(message, new, i + 1)
    reply.content["prototypes"] = record(
        {"sums": np.ones((1, 1), np.float32), "shares": np.ones(1, np.float32)}
    )
    means, spread = features[i]
    arrays = {"class-means": np.array([[means]], np.float32), "spread": np.array(spread, np.float32)}
    reply.content["features"] = record(arrays)
    return reply


def test_the_body_is_the_mean_and_heads_are_mixtures_of_those_that_answered():
    strategy, arrays = FedPAC(), record(START)
    strategy.head = frozenset({"head"})
    features, heads, body = [(0.0, 1.0), (0.0, 3.0), (1e6, 1.0)], {}, np.zeros(2)
    for lost in (None, 1):

        def client(message, i, lost=lost, body=body, heads=heads):
            sent = ndarrays(message.content["arrays"])
            np.testing.assert_allclose(sent["body"], body, rtol=1e-6)
            if i in heads:
                np.testing.assert_allclose(sent["head"], heads[i], rtol=1e-5)
            return None if i == lost else answer_of(i, message, features)

        grid = CannedGrid(3, client)
        messages = strategy.configure_train(1, arrays, ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
        who = [i for i in range(3) if i != lost]
        trained = {i: heads.get(i, np.zeros(2)) + 10 * (i + 1) for i in who}
        body = body + np.average([i + 1 for i in who], weights=[i + 1 for i in who])
        if lost is None:
            heads = {0: 0.75 * trained[0] + 0.25 * trained[1], 2: trained[2]}
            heads[1] = heads[0]
        else:
            heads = heads | {0: trained[0], 2: trained[2]}
        np.testing.assert_allclose(ndarrays(arrays)["body"], body, rtol=1e-6)
        for i, head in heads.items():
            model = strategy.rule_state.models[f"client-{i}"]
            assert list(model) == ["head"]
            np.testing.assert_allclose(ndarrays(model)["head"], head, rtol=1e-5)


@pytest.mark.parametrize(
    ("means", "spread", "why"),
    [
        ([[1e9]], 1.0, "features: a mean feature above 1e+06"),
        ([[1.0]], -1.0, "spread: from -1 to -1, not a number in [0, 1e+12]"),
        ([[1.0]], 1e13, "spread: from 1e+13 to 1e+13, not a number in [0, 1e+12]"),
        ([[1.0]], [1.0], "spread: shape (1,), expected ()"),
        ([1.0], 1.0, "class-means: shape (1,), expected (1, 1)"),
        (1.0, 1.0, "class-means: shape (), expected (1, 1)"),
        ([[1.0, 1.0]], 1.0, "class-means: shape (1, 2), expected (1, 1)"),
    ],
)
def test_features_that_cannot_be_are_refused(means, spread, why):
    strategy = FedPAC()
    strategy.head = frozenset({"head"})

    def client(message, i):
        reply = answer_of(i, message, [(0.0, 1.0)] * 2)
        if i == 1:
            arrays = {"class-means": np.array(means, np.float32), "spread": np.array(spread, np.float32)}
            reply.content["features"] = record(arrays)
        return reply

    grid = CannedGrid(2, client)
    messages = strategy.configure_train(1, record(START), ConfigRecord(), grid)
    strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert list(strategy.phase_report.metrics) == [0]
    assert strategy.phase_report.failures == {1: why}

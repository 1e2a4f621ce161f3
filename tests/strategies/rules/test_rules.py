"""Each rule against its equation, written out here in float64 over 20 random rounds."""

from types import SimpleNamespace

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi
from strategies.aggregation.rule_state import RuleState

from ..helpers import CannedGrid, ndarrays, one_round, record, train_reply

ROUNDS, CLIENTS = 20, 5


def fedavg(x, rounds, eta, momentum):
    v = 0.0
    for delta in rounds:
        v = momentum * v + delta
        x = x + eta * v
    return x


def adaptive(rule, x, rounds, eta, b1, b2, tau, corrected, v_init):
    m, v = np.zeros_like(x), np.full_like(x, v_init)
    for t, d in enumerate(rounds, start=1):
        m = b1 * m + (1 - b1) * d
        if rule == "adagrad":
            v = v + d**2
        elif rule == "yogi":
            v = v - (1 - b2) * d**2 * np.sign(v - d**2)
        else:
            v = b2 * v + (1 - b2) * d**2
        m_hat, v_hat = (m / (1 - b1**t), v / (1 - b2**t)) if corrected else (m, v)
        x = x + eta * m_hat / (np.sqrt(v_hat) + tau)
    return x


def run(strategy, x, deltas_by_client, weights):
    """20 rounds in which client i answers with the model it was sent plus its own difference."""
    arrays = {"w": x.astype(np.float32).reshape(2, -1)}
    for t, deltas in enumerate(deltas_by_client, start=1):
        models = [{"w": (arrays["w"] + d.reshape(2, -1)).astype(np.float32)} for d in deltas]
        arrays = one_round(strategy, arrays, models, weights, t)
        assert arrays["w"].dtype == np.float32
    return arrays["w"].ravel()


@pytest.fixture
def problem():
    rng = np.random.default_rng(7)
    x = rng.normal(size=12)
    deltas = rng.normal(scale=0.1, size=(ROUNDS, CLIENTS, 12))
    weights = [3, 1, 4, 1, 5]
    mean = np.average(deltas, axis=1, weights=weights)
    return x, deltas, weights, mean


@pytest.mark.parametrize(("eta", "momentum"), [(1.0, 0.0), (0.5, 0.0), (0.3, 0.9)])
def test_fedavg_follows_its_equation(problem, eta, momentum):
    x, deltas, weights, mean = problem
    got = run(FedAvg(eta=eta, momentum=momentum), x, deltas, weights)
    np.testing.assert_allclose(got, fedavg(x, mean, eta, momentum), atol=1e-6)


def test_fedavgm_follows_its_equation(problem):
    x, deltas, weights, mean = problem
    got = run(FedAvgM(server_learning_rate=0.3, server_momentum=0.8), x, deltas, weights)
    np.testing.assert_allclose(got, fedavg(x, mean, 0.3, 0.8), atol=1e-6)


@pytest.mark.parametrize(("rule", "cls"), [("yogi", FedYogi), ("adam", FedAdam)])
@pytest.mark.parametrize(("corrected", "v_init"), [(True, 0.0), (False, 1e-6), (False, 0.0)])
def test_adaptive_rules_follow_their_equations(problem, rule, cls, corrected, v_init):
    x, deltas, weights, mean = problem
    strategy = cls(eta=0.01, beta_1=0.9, beta_2=0.99, tau=1e-3, bias_correction=corrected, v_init=v_init)
    expected = adaptive(rule, x, mean, 0.01, 0.9, 0.99, 1e-3, corrected, v_init)
    np.testing.assert_allclose(run(strategy, x, deltas, weights), expected, atol=1e-6)


@pytest.mark.parametrize("beta_1", [0.0, 0.9])
def test_fedadagrad_follows_its_equation(problem, beta_1):
    x, deltas, weights, mean = problem
    strategy = FedAdagrad(eta=0.01, beta_1=beta_1, tau=1e-3)
    expected = adaptive("adagrad", x, mean, 0.01, beta_1, 0, 1e-3, False, 0.0)
    np.testing.assert_allclose(run(strategy, x, deltas, weights), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (FedYogi(bias_correction=False), flower.FedYogi()),
        (FedAdagrad(eta=0.1), flower.FedAdagrad()),
        (FedAvg(), flower.FedAvg()),
        (FedAvgM(), flower.FedAvgM(server_momentum=0.9)),
    ],
)
def test_agrees_with_flower_where_flower_is_right(problem, ours, theirs):
    x, deltas, weights, _ = problem
    np.testing.assert_allclose(
        run(ours, x, deltas, weights), run_flower(theirs, x, deltas, weights), atol=1e-6
    )


def run_flower(strategy, x, deltas_by_client, weights):
    from flwr.app import ConfigRecord

    arrays = {"w": x.astype(np.float32).reshape(2, -1)}
    for t, deltas in enumerate(deltas_by_client, start=1):

        def client(message, i, arrays=arrays, deltas=deltas):
            return train_reply(message, {"w": (arrays["w"] + deltas[i].reshape(2, -1))}, weights[i])

        grid = CannedGrid(CLIENTS, client)
        messages = strategy.configure_train(t, record(arrays), ConfigRecord(), grid)
        arrays = ndarrays(strategy.aggregate_train(t, grid.send_and_receive(messages))[0])
    return arrays["w"].ravel()


def test_fedadam_first_step_has_its_full_length():
    """By hand: m^ = D, v^ = D^2, so the first step is eta D / (|D| + tau).

    Flower corrects with t + 1: sqrt(1 - 0.99^2) / (1 - 0.9^2) = 0.74 of it (0.73 at its default tau).
    """
    x, d = np.zeros(4), np.array([0.5, -0.5, 0.25, 0.1])
    got = run(FedAdam(eta=0.1, tau=1e-3), x, [[d, d]], [1, 1])
    np.testing.assert_allclose(got, 0.1 * d / (np.abs(d) + 1e-3), rtol=1e-5)
    flowers = run_flower(flower.FedAdam(eta=0.1, tau=1e-9), x, [[d] * CLIENTS], [1] * CLIENTS)
    np.testing.assert_allclose(flowers, 0.07425 * np.sign(d), rtol=1e-3)


@settings(max_examples=25)
@given(d=st.floats(0.01, 10) | st.floats(-10, -0.01), steps=st.integers(1, 8))
def test_fedadam_at_a_constant_pseudo_gradient_moves_by_eta_a_round(d, steps):
    """At constant D the corrected moments are D and D^2 whatever t: t steps of eta sign(D) as tau -> 0."""
    delta = np.full(2, d)
    got = run(FedAdam(eta=0.01, tau=1e-9), np.zeros(2), [[delta, delta]] * steps, [1, 1])
    np.testing.assert_allclose(got, steps * 0.01 * np.sign(d), rtol=1e-3)


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (FedAvg, {"eta": 0}),
        (FedAvg, {"eta": float("inf")}),
        (FedAvg, {"momentum": 1.0}),
        (FedYogi, {"tau": 0}),
        (FedYogi, {"beta_1": 1.0}),
        (FedAdam, {"beta_2": -0.1}),
        (FedAdagrad, {"v_init": -1}),
        (FedAvg, {"fraction_train": 1.5}),
        (FedAvg, {"min_train_nodes": -1}),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(cls, arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        cls(**arguments)


def test_bias_is_corrected_by_updates_not_by_rounds():
    """Round 1 has no answers. The first update, in round 2, is that of t = 1: eta D / (|D| + tau)."""
    strategy = FedAdam(eta=0.1, tau=1e-3)
    start, model = {"w": np.zeros(2, np.float32)}, {"w": np.float32([1, -0.5])}
    grid = CannedGrid(
        2, lambda m, i: train_reply(m, model) if m.content["config"]["server-round"] > 1 else None
    )
    for server_round in (1, 2):
        messages = strategy.configure_train(server_round, record(start), ConfigRecord(), grid)
        updated, _ = strategy.aggregate_train(server_round, grid.send_and_receive(messages))
        assert (updated is None) == (server_round == 1)
    expected = 0.1 * model["w"] / (np.abs(model["w"]) + 1e-3)
    np.testing.assert_allclose(ndarrays(updated)["w"], expected, rtol=1e-5)


def stepped_later(rule, deltas, late, since):
    """The model's way under a rule: of ``deltas``, (rounds, n), those of ``late`` count from a round on."""
    state, way = RuleState(), np.zeros(deltas.shape[1])
    for t, delta in enumerate(deltas, start=1):
        if t == since:
            state.new = late
        stepped = np.ones_like(late) if t >= since else ~late
        way[stepped] += rule.server_step(delta[stepped].copy(), state, SimpleNamespace(update=t))
        state.updates += 1
    return way


@pytest.mark.parametrize("since", [2, 10, 21])
def test_parameters_that_are_stepped_later_count_their_own_updates_as_in_torch(since):
    """torch.optim.Adam counts the steps of each parameter; a common t gave 0.74 and 0.475 of the first."""
    deltas = np.random.default_rng(3).normal(scale=0.1, size=(20, 6))
    late = np.array([False, True, False, True, True, False])
    old, new = (torch.zeros(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    adam = torch.optim.Adam([old, new], lr=0.01, betas=(0.9, 0.99), eps=1e-3, maximize=True)
    for t, delta in enumerate(deltas, start=1):
        old.grad = torch.from_numpy(delta[~late])
        new.grad = torch.from_numpy(delta[late]) if t >= since else None
        adam.step()
    way = stepped_later(FedAdam(eta=0.01, beta_1=0.9, beta_2=0.99, tau=1e-3), deltas, late, since)
    np.testing.assert_allclose(way[~late], old.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(way[late], new.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(("since", "too_small"), [(2, 0.742), (10, 0.475)])
def test_their_first_step_is_that_of_a_first_round(since, too_small):
    deltas, late = np.full((since, 2), 0.5), np.array([False, True])
    way = stepped_later(FedYogi(tau=1e-9), deltas, late, since)
    assert way[1] == pytest.approx(0.01)
    b1, b2 = 0.9, 0.99
    by_the_runs_t = (1 - b1) / (1 - b1**since) / np.sqrt((1 - b2) / (1 - b2**since))
    assert by_the_runs_t == pytest.approx(too_small, abs=0.001)  # what it was


@pytest.mark.parametrize("cls", [FedAdagrad, FedYogi, FedAdam])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_those_that_were_there_keep_their_bits(cls, dtype):
    deltas = np.random.default_rng(4).normal(scale=0.1, size=(9, 5)).astype(dtype)
    late = np.array([True, False, False, True, False])
    none = np.zeros(3, bool)
    way = stepped_later(cls(bias_correction=True), deltas, late, 4)
    assert (
        way[~late].tobytes() == stepped_later(cls(bias_correction=True), deltas[:, ~late], none, 99).tobytes()
    )


def test_a_state_of_an_older_checkpoint_counts_as_it_did():
    """Its moments are of all parameters already, and nothing says since when: the run's t is left."""
    state = RuleState(updates=5, vectors={"m": np.ones(2), "v": np.ones(2)}, new=np.array([False, True]))
    state.vector("m", like=np.ones(2))
    assert state.count(6) == 6

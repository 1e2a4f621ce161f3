"""FedAdam and its like: bias is corrected by updates, of each parameter by its own; what FedAMS remembers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from strategies import FedAdagrad, FedAdam, FedAMS, FedYogi
from strategies.aggregation.rule_state import RuleState

from ..helpers import CannedGrid, ndarrays, train, train_reply


def test_bias_is_corrected_by_updates_not_by_rounds():
    """Round 1 has no answers. The first update, in round 2, is that of t = 1: eta D / (|D| + tau)."""
    strategy = FedAdam(eta=0.1, tau=1e-3)
    start, model = {"w": np.zeros(2, np.float32)}, {"w": np.float32([1, -0.5])}
    grid = CannedGrid(
        2, lambda m, i: train_reply(m, model) if m.content["config"]["server-round"] > 1 else None
    )
    for server_round in (1, 2):
        updated, _ = train(strategy, start, grid, server_round)
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


def test_parameters_that_are_stepped_later_begin_at_eps():
    deltas, late = np.full((5, 2), 0.5), np.array([False, True])
    way = stepped_later(FedAMS(eta=0.1), deltas, late, 5)
    assert way[1] == pytest.approx(0.1), "a first step, whichever round it is"

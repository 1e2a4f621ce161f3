"""Attacks: none finds more than is claimed, and each finds a broken mechanism out."""

import numpy as np
import pytest
import torch

from clients.modules.dp_sgd import ExampleMechanism
from clients.modules.local_dp import LocalMechanism
from clients.objectives import Objective
from clients.problems import Regression
from fedbn_flower.privacy.accounts import Plan, local_noise_for, noise_for
from fedbn_flower.privacy.keys import Key

from .audit import audited, lower_bound

CLAIM = 1.0
CANARIES, GUESSES, SHARE, DELTA = 2000, 200, 0.25, 1e-5


@pytest.mark.parametrize(
    ("m", "r", "v", "expected"), [(100, 100, 100, 3.493), (1000, 1000, 1000, 5.809), (1000, 1000, 750, 0.977)]
)
def test_bounds_of_the_paper(m, r, v, expected):
    assert lower_bound(m, r, v) == pytest.approx(expected, rel=1e-3)


def test_all_right_is_a_closed_form():
    """0.05 = sigmoid(epsilon)^r."""
    p = 0.05 ** (1 / 40)
    assert lower_bound(500, 40, 40) == pytest.approx(np.log(p / (1 - p)))


def test_delta_lowers_the_bound():
    bounds = [lower_bound(1000, 1000, 750, delta) for delta in (0, 1e-6, 1e-5, 1e-4)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[3]


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "found_out"), [(1.0, False), (0.25, True)])
def test_local_noise(factor, found_out):
    """A client sends C u or -C u, three times."""
    inside = np.random.default_rng(3).random(CANARIES) < 0.5
    mechanism = LocalMechanism(
        1.0, factor * local_noise_for(CLAIM, 3, DELTA), Key.of_seed(1).numbers(1, 1, "noise")
    )
    scores = np.zeros(CANARIES)
    for canary in range(CANARIES):
        sent = {"w": np.where(inside[canary], [5.0], [-5.0])}
        for _ in range(3):
            scores[canary] += mechanism.release({"w": np.zeros(1)}, sent)["w"][0]
    assert (audited(scores, inside, GUESSES, DELTA) > CLAIM) == found_out


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "found_out"), [(1.0, False), (0.25, True)])
def test_examples_of_one_client(factor, found_out):
    """Examples x = e_i with far targets have gradients along e_i, all longer than C."""
    canaries, steps = 400, 20
    inside = np.random.default_rng(3).random(canaries) < 0.5
    plan = Plan("poisson", SHARE, canaries, steps, DELTA)
    noise = factor * noise_for(CLAIM, plan)
    mechanism = ExampleMechanism(1.0, noise, Key.of_seed(2).numbers(1, 1, "noise"))
    model, objective = torch.nn.Linear(canaries, 1, bias=False), Objective({}, {}, problem=Regression())
    x, y = torch.eye(canaries), torch.full((canaries, 1), -100.0)
    scores = np.zeros(canaries)
    for batch in mechanism.batches(canaries, round(SHARE * canaries), steps):
        there = batch[inside[batch]]
        mechanism.backward(model, objective, x[there], y[there], 1)
        scores += model.weight.grad[0].double().numpy()
    assert (audited(scores, inside, 60, DELTA) > CLAIM) == found_out

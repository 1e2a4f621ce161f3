"""FedDecorr against Shi et al. 2023: squared correlations of a batch's features."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clients import FedAvgClient, FedBNClient, LocalTraining
from clients.objectives.features import mean_squared_correlation

from ..helpers import CONFIG
from ..helpers import make_client as small_client
from ..networks import dropping
from ..written import CASES, TRAINING, At, check_gradient, check_rounds, forward, make_client, usual

BETA = 0.8


def written(at: At):
    """Every two features' correlation coefficient, squared; the five with themselves are 1."""
    z = forward(at.w, at.inputs)[0]
    z = z - z.mean(0)
    total = 0.0
    for j in range(5):
        for k in range(5):
            a, b = z[:, j], z[:, k]
            total = total + (a @ b) ** 2 / ((a @ a) * (b @ b))
    return usual(at) + BETA * total / 25


@pytest.mark.parametrize("case", CASES)
def test_its_gradient_is_that_of_the_formula(case, monkeypatch):
    monkeypatch.setattr("clients.objectives.features.EPSILON", 0.0)
    check_gradient(make_client(*case, "feddecorr"), written, config={"decorr-beta": BETA})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_three_rounds_are_those_of_the_formula(case, monkeypatch):
    monkeypatch.setattr("clients.objectives.features.EPSILON", 0.0)
    client = make_client(*case, "feddecorr", training=TRAINING)
    check_rounds(client, written, config={"decorr-beta": BETA})


def test_by_hand():
    """Two features that are one: all four correlations are 1. Two without any: only those with themselves."""
    same = torch.tensor([[0.0, 0.0], [2.0, 20.0], [4.0, 40.0]])
    apart = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert mean_squared_correlation(same).item() == pytest.approx(1)
    assert mean_squared_correlation(apart).item() == pytest.approx(1 / 2)
    assert mean_squared_correlation(torch.tensor([[1.0, 5.0], [2.0, 5.0]])).item() == pytest.approx(1 / 4)


@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(1, 9))
def test_it_is_the_mean_of_numpys_squared_correlations_whichever_way_it_is_computed(seed, count, width):
    """More features than examples, or fewer; whatever their units and origins are."""
    rng = np.random.default_rng(seed)
    z = 1e4 * (rng.normal(size=(count, width)) * rng.uniform(0.5, 2, width) + rng.normal(size=width))
    expected = np.mean(np.atleast_2d(np.corrcoef(z, rowvar=False)) ** 2)
    found = mean_squared_correlation(torch.from_numpy(z)).item()
    assert found == pytest.approx(expected, rel=1e-4)
    assert 1 / width - 1e-4 < found < 1 + 1e-9


def test_a_feature_that_is_constant_in_a_batch_has_a_finite_gradient():
    """As one of a ReLU that is never active; torch.corrcoef gives NaN."""
    z = torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0]], requires_grad=True)
    mean_squared_correlation(z).backward()
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("cls", [FedAvgClient, FedBNClient])
def test_with_beta_zero_it_is_sgd(cls):
    """Bit for bit."""
    sent = []
    for objective in ("plain", "feddecorr"):
        client = small_client(cls, model=dropping(), training=LocalTraining(2, 8), objective=objective)
        arrays, _, metrics = client.fit(client.get_parameters({}), CONFIG | {"decorr-beta": 0.0})
        sent.append([*arrays, metrics["train-loss"]])
    for a, b in zip(*sent, strict=True):
        np.testing.assert_array_equal(a, b)


def test_one_example_has_no_correlations():
    client = make_client("shared", False, "feddecorr")
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG | {"decorr-beta": BETA}, {})
    inputs, targets = client.task.train.prepared(np.arange(1))
    with_it, output = run.objective.loss(client.task.model, inputs, targets)
    assert with_it.item() == client.task.problem.loss(output, targets).item()


def test_a_loss_by_example_has_the_mean_of_the_batchs():
    client = make_client("shared", False, "feddecorr")
    run = client.begin_run(dict(client.task.model.named_parameters()), CONFIG | {"decorr-beta": BETA}, {})
    inputs, targets = client.task.train.prepared(np.arange(9))
    each, mean = (run.objective.loss(client.task.model, inputs, targets, r)[0] for r in ("none", "mean"))
    assert each.shape == (9,)
    assert each.mean().item() == pytest.approx(mean.item())


def test_the_term_alone_spreads_features_over_more_directions():
    """Steps against it: the entropy of nearly one direction rises."""
    torch.manual_seed(0)
    z = (torch.randn(32, 1) @ torch.ones(1, 6) + 0.1 * torch.randn(32, 6)).requires_grad_()

    def entropy():
        values = torch.linalg.svdvals((z - z.mean(0)).detach()) ** 2
        shares = values / values.sum()
        return -(shares * shares.log()).sum().item()

    before = entropy()
    for _ in range(200):
        (gradient,) = torch.autograd.grad(mean_squared_correlation(z), z)
        z.data -= 5 * gradient
    assert entropy() > before + 0.5

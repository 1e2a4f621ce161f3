"""FedNTD against Lee et al. 2022: what the received model knows of the classes that are not the true one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from clients import OBJECTIVES, FedAvgClient, FedBNClient, Local, LocalTraining, Loss

from ..helpers import CONFIG, make_examples
from ..helpers import make_client as small_client
from ..networks import dropping
from ..written import CASES, TRAINING, At, check_gradient, check_rounds, forward, make_client, usual
from .test_objectives import Reaches

BETA, T = 0.7, 2.0
SETTINGS = {"ntd-beta": BETA, "ntd-temperature": T}


def written(at: At):
    """Example by example, class by class; the received model is in evaluation mode."""
    teacher, student = forward(at.x, at.inputs, train=False)[1], forward(at.w, at.inputs)[1]
    total = 0.0
    for i, y in enumerate(at.targets.tolist()):
        others = [c for c in range(teacher.shape[1]) if c != y]
        p, q = ((z[i, others] / T).exp() for z in (teacher, student))
        p, q = p / p.sum(), q / q.sum()
        total = total + sum(p[c] * (p[c] / q[c]).log() for c in range(len(others)))
    return usual(at) + BETA * T**2 * total / len(at.targets)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_its_gradient_is_that_of_the_formula(case):
    check_gradient(make_client(*case, "fedntd"), written, config=SETTINGS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_three_rounds_are_those_of_the_formula(case):
    check_rounds(make_client(*case, "fedntd", training=TRAINING), written, config=SETTINGS)


class Logits(nn.Embedding):
    """Logits by the example's number."""

    def __init__(self, logits):
        super().__init__(len(logits), len(logits[0]))
        self.weight.data = torch.tensor(logits, dtype=torch.float64)

    def forward(self, number):
        return super().forward(number.squeeze(1))


class Nothing(Loss):
    """So that the distillation is left alone."""

    def __call__(self, output, targets, reduction="mean"):
        return 0 * output.sum()


def distillation(received, local, targets, beta=1.0, temperature=1.0, reduction="mean"):
    """FedNTD's loss without f, and its gradient by the local logits."""
    model = Logits(received)
    objective = OBJECTIVES["fedntd"](
        dict(model.named_parameters()),
        {"beta": beta, "temperature": temperature},
        local=Local(model, make_examples(), Nothing()),
    )
    with torch.no_grad():
        model.weight.copy_(torch.as_tensor(local))
    loss, _ = objective.loss(
        model, torch.arange(len(targets)).unsqueeze(1), torch.as_tensor(targets), reduction
    )
    loss.sum().backward()
    return loss.detach(), model.weight.grad


ln2, ln3 = np.log(2), np.log(3)
HAND = 0.25 * np.log(0.25 / 0.5) + 0.75 * np.log(0.75 / 0.5)
"""KL of (1/4, 3/4) to (1/2, 1/2): 0.1308; the other way it would be 0.1438."""


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_by_hand(temperature):
    """Two examples, of classes 0 and 2; logits of the others (0, T ln 3) received and alike here.

    At temperature T that is (1/4, 3/4) to (1/2, 1/2), times T^2. The gradient of each example's logits is
    T (q - q_x) / 2: nothing for the true class, whatever its logits are.
    """
    t = temperature
    received = [[9.0, 0.0, t * ln3], [0.0, t * ln3, -9.0]]
    local = [[-5.0, 1.0, 1.0], [2.0, 2.0, 7.0]]
    loss, gradient = distillation(received, local, [0, 2], 0.5, t)
    assert loss.item() == pytest.approx(0.5 * t**2 * HAND)
    expected = 0.5 * t / 2 * np.array([[0, 0.25, -0.25], [0.25, -0.25, 0]])
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-12)


def test_of_two_classes_the_one_that_is_not_true_is_certain():
    loss, gradient = distillation([[1.0, 2.0]], [[-3.0, 5.0]], [0])
    assert loss.item() == 0
    assert not gradient.any()


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(0.1, 10))
def test_at_the_received_model_there_is_nothing_to_distil(seed, classes, temperature):
    rng = np.random.default_rng(seed)
    logits, targets = rng.normal(scale=5, size=(4, classes)), rng.integers(0, classes, 4)
    loss, gradient = distillation(logits, logits, targets, 1.0, temperature)
    assert loss.abs().item() < 1e-12
    assert gradient.abs().max() < 1e-12


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(0.5, 5))
def test_it_is_never_negative_and_each_example_counts_alike(seed, classes, temperature):
    rng = np.random.default_rng(seed)
    received, local = rng.normal(scale=3, size=(2, 4, classes))
    targets = rng.integers(0, classes, 4)
    each, _ = distillation(received, local, targets, 1.0, temperature, "none")
    mean, _ = distillation(received, local, targets, 1.0, temperature)
    assert each.shape == (4,)
    assert (each > -1e-12).all()
    assert mean.item() == pytest.approx(each.mean().item())


@pytest.mark.parametrize("cls", [FedAvgClient, FedBNClient])
def test_with_beta_zero_it_is_sgd(cls):
    """Bit for bit: the received model's passes move no statistics and draw nothing of dropout's numbers."""
    sent = []
    for objective in ("plain", "fedntd"):
        client = small_client(cls, model=dropping(), training=LocalTraining(2, 8), objective=objective)
        arrays, _, metrics = client.fit(client.get_parameters({}), CONFIG | {"ntd-beta": 0.0})
        sent.append([*arrays, *(client.memory.read("local") or {}).values(), metrics["train-loss"]])
    for a, b in zip(*sent, strict=True):
        np.testing.assert_array_equal(a, b)


class Headless(Reaches):
    """Its last layer is in no use."""

    head = None


def test_it_asks_for_no_head():
    client = small_client(FedAvgClient, model=Headless(), objective="fedntd")
    arrays = client.fit(client.get_parameters({}), CONFIG)[0]
    assert all(np.isfinite(a).all() for a in arrays)

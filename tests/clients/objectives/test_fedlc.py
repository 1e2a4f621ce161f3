"""FedLC against Zhang et al. 2022: margins by the counts of the client's classes, in the loss alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from clients import OBJECTIVES, Examples, Local, Loss
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError

from ..written import CASES, TRAINING, At, check_gradient, check_rounds, cross_entropy, forward, make_client

TAU = 0.7


def written(at: At):
    """Classes of 20, 12 and 8 examples; the fourth is nowhere in the sum."""
    margins = torch.tensor([0.7 / 20**0.25, 0.7 / 12**0.25, 0.7 / 8**0.25], dtype=torch.float64)
    return cross_entropy(forward(at.w, at.inputs)[1][:, :3] - margins, at.targets).mean()


@pytest.mark.parametrize("case", CASES)
def test_its_gradient_is_that_of_the_formula(case):
    check_gradient(make_client(*case, "fedlc"), written, config={"lc-tau": TAU})


@pytest.mark.parametrize("case", CASES)
def test_three_rounds_are_those_of_the_formula(case):
    check_rounds(make_client(*case, "fedlc", training=TRAINING), written, config={"lc-tau": TAU})


def loss_of(logits, targets, labels, tau, reduction="mean"):
    """The objective's loss of logits themselves, and the output."""
    examples = Examples({"x": np.zeros(len(labels)), "y": np.array(labels)}, np.arange(len(labels)))
    model = nn.Identity()
    objective = OBJECTIVES["fedlc"]({}, {"tau": tau}, local=Local(model, examples, Loss(examples=examples)))
    return objective.loss(model, logits, torch.as_tensor(targets), reduction)


def test_by_hand():
    """16 examples of class 0 and 1 of class 1, tau 2 ln 2: margins ln 2 and ln 4, so shares 2 to 1 of z = 0.

    The class that is absent has none, and no gradient: one example of it, as a floor, would have 1/4.
    """
    logits = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    loss, output = loss_of(logits, [1], [0] * 16 + [1], 2 * np.log(2))
    loss.backward()
    assert loss.item() == pytest.approx(np.log(3))
    assert logits.grad[0].tolist() == pytest.approx([2 / 3, -2 / 3, 0])
    assert torch.equal(output, logits), "what is predicted has no margins"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_great_logits_do_not_overflow(dtype):
    """As e^z, summed and divided, does in other code: from 89 on in float32."""
    logits = torch.tensor([[300.0, 0.0, 500.0]], dtype=dtype, requires_grad=True)
    loss, _ = loss_of(logits, [1], [0, 1], 1.0)
    loss.backward()
    assert loss.item() == pytest.approx(300)
    assert logits.grad[0].tolist() == [1, -1, 0]


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 10), st.integers(1, 9))
def test_as_many_examples_of_each_class_leave_cross_entropy(seed, tau, times):
    rng = np.random.default_rng(seed)
    logits, targets = torch.from_numpy(rng.normal(scale=3, size=(6, 4))), rng.integers(0, 4, 6)
    expected = cross_entropy(logits, torch.from_numpy(targets))
    labels = [0, 1, 2, 3] * times
    torch.testing.assert_close(loss_of(logits, targets, labels, tau, "none")[0], expected)
    torch.testing.assert_close(loss_of(logits, targets, labels, tau)[0], expected.mean())


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 5))
def test_the_rarer_class_has_the_greater_margin(seed, few, more):
    """Its own examples cost more than without margins, those of the other class less."""
    z = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, 2)))
    labels = [0] * few + [1] * (few + more)
    rare, often = (loss_of(z, [y], labels, 1.0)[0] - cross_entropy(z, torch.tensor([y]))[0] for y in (0, 1))
    assert rare > 0 > often


@pytest.mark.parametrize("loss", ["label-smoothing", "calc"])
def test_a_loss_that_wants_every_class_is_refused(loss):
    with pytest.raises(UserError, match=f"loss: '{loss}' is not allowed; expected"):
        run_config({"objective": "fedlc", "loss": loss})


@pytest.mark.parametrize("tau", [0.0, -1.0, float("inf")])
def test_a_margin_is_more_than_nothing(tau):
    with pytest.raises(UserError, match="lc-tau"):
        run_config({"objective": "fedlc", "lc-tau": tau})

"""FedRS against Li and Zhan 2021: restricted softmax, not a mask."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from clients import OBJECTIVES, Examples, Local, Loss

from ..written import CASES, TRAINING, At, check_gradient, check_rounds, cross_entropy, forward, make_client


def written(at: At):
    """a = 0.3: classes of 20, 12, 8 and 0 examples are scaled by 0.7 n / 20 + 0.3."""
    scale = torch.tensor([1.0, 0.72, 0.58, 0.3], dtype=torch.float64)
    return cross_entropy(scale * forward(at.w, at.inputs)[1], at.targets).mean()


@pytest.mark.parametrize("case", CASES)
def test_its_gradient_is_that_of_the_formula(case):
    check_gradient(make_client(*case, "fedrs"), written, config={"rs-a": 0.3})


@pytest.mark.parametrize("case", CASES)
def test_three_rounds_are_those_of_the_formula(case):
    check_rounds(make_client(*case, "fedrs", training=TRAINING), written, config={"rs-a": 0.3})


def loss_of(logits, targets, labels, a, reduction="mean"):
    """The objective's loss of logits themselves, and the output."""
    examples = Examples({"x": np.zeros(len(labels)), "y": np.array(labels)}, np.arange(len(labels)))
    model = nn.Identity()
    objective = OBJECTIVES["fedrs"]({}, {"a": a}, local=Local(model, examples, Loss(examples=examples)))
    return objective.loss(model, logits, torch.tensor(targets), reduction)


def test_a_class_that_a_client_lacks_is_scaled_and_not_masked():
    """Labels 0, 0, 1, logits (ln 2, ln 4, ln 16), a 1/2: scales (1, 3/4, 1/2), numerators (2, 2^1.5, 4).

    The gradient of the absent class's logit is a p = 1/2 4 / (6 + 2^1.5); under a mask it would be 0.
    """
    logits = torch.tensor([[2.0, 4.0, 16.0]]).log().requires_grad_()
    loss, output = loss_of(logits, [0], [0, 0, 1], 0.5)
    loss.backward()
    total = 6 + 2**1.5
    assert loss.item() == pytest.approx(np.log(total / 2))
    assert logits.grad[0].tolist() == pytest.approx([2 / total - 1, 0.75 * 2**1.5 / total, 2 / total])
    assert torch.equal(output, logits), "what is predicted is not restricted"


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_with_a_one_it_is_cross_entropy(seed, labels):
    rng = np.random.default_rng(seed)
    logits, targets = torch.from_numpy(rng.normal(scale=3, size=(6, 4))), rng.integers(0, 4, 6)
    expected = cross_entropy(logits, torch.from_numpy(targets))
    torch.testing.assert_close(loss_of(logits, targets, labels, 1.0, "none")[0], expected)
    torch.testing.assert_close(loss_of(logits, targets, labels, 1.0)[0], expected.mean())


@given(st.integers(1, 5), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_shares_alone_count_and_alike_ones_change_nothing(times, a, seed):
    """The client's data many times over, and one with as many examples of each class."""
    rng = np.random.default_rng(seed)
    logits, targets = torch.from_numpy(rng.normal(size=(6, 4))), rng.integers(0, 4, 6)
    labels = [0, 0, 0, 1, 3]
    once, often = (loss_of(logits, targets, labels * n, a)[0] for n in (1, times))
    torch.testing.assert_close(once, often)
    balanced = loss_of(logits, targets, [0, 1, 2, 3] * times, a)[0]
    torch.testing.assert_close(balanced, cross_entropy(logits, torch.from_numpy(targets)).mean())

"""Losses against their formulas, and what they are where a setting says nothing; with every objective."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clients import LOSSES, OBJECTIVES, PROBLEMS, Examples

from ..quick import diagonal_quick
from .helpers import CONFIG
from .written import CASES, CLASSES, COUNTS, TRAINING, At, check_rounds, cross_entropy, forward, make_client

SETTINGS = {
    "auto": {},
    "class-balanced": {"beta": 0.9},
    "focal": {"gamma": 1.5},
    "label-smoothing": {"smoothing": 0.2},
    "logit-adjusted": {"tau": 0.7},
}


def softmax(z):
    return z.exp() / z.exp().sum(1, keepdim=True)


def focal(z, targets, gamma=1.5):
    p = (-cross_entropy(z, targets)).exp()
    return -((1 - p) ** gamma) * p.log()


def label_smoothing(z, targets, s=0.2):
    wanted = (1 - s) * torch.eye(CLASSES, dtype=z.dtype)[targets] + s / CLASSES
    return -(wanted * softmax(z).log()).sum(1)


def class_balanced(z, targets, beta=0.9):
    """A class's weight is one over its effective number, 1 + beta + ... + beta^(n - 1)."""
    effective = [sum(beta**k for k in range(int(n))) for n in COUNTS]
    weights = torch.tensor([1 / e if e else 0.0 for e in effective], dtype=z.dtype)
    return (weights / weights[:3].mean())[targets] * cross_entropy(z, targets)


def logit_adjusted(z, targets, tau=0.7):
    """Numerators weighted by q^tau; the absent class counts as one of the 40."""
    raised = torch.tensor([20 / 40, 12 / 40, 8 / 40, 1 / 40], dtype=z.dtype) ** tau
    shares = raised * z.exp() / (raised * z.exp()).sum(1, keepdim=True)
    return -shares.gather(1, targets[:, None])[:, 0].log()


WRITTEN = {
    "class-balanced": class_balanced,
    "focal": focal,
    "label-smoothing": label_smoothing,
    "logit-adjusted": logit_adjusted,
}


def formula_of(name):
    def formula(at: At):
        return WRITTEN[name](forward(at.w, at.inputs)[1], at.targets).mean()

    return formula


@pytest.mark.parametrize(("name", "case"), diagonal_quick([*WRITTEN], CASES))
def test_three_rounds_are_those_of_the_formula(name, case):
    client = make_client(*case, "plain", name, SETTINGS[name], TRAINING)
    check_rounds(client, formula_of(name))


def loss_of(name, labels, **settings):
    examples = Examples({"x": np.zeros(len(labels)), "y": np.array(labels)}, np.arange(len(labels)))
    return LOSSES[name](examples=examples, settings=settings)


logits = st.integers(0, 2**32 - 1).map(lambda seed: torch.from_numpy(np.random.default_rng(seed).normal(
    scale=4, size=(5, CLASSES))))  # fmt: skip
answers = st.lists(st.integers(0, CLASSES - 1), min_size=5, max_size=5).map(torch.tensor)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("focal", {"gamma": 0.0}), ("class-balanced", {"beta": 0.0}), ("label-smoothing", {"smoothing": 0.0}),
     ("logit-adjusted", {"tau": 0.0}), ("auto", {})],
)  # fmt: skip
@settings(max_examples=20)
@given(logits, answers)
def test_a_setting_that_says_nothing_leaves_cross_entropy(name, settings, z, targets):
    loss = loss_of(name, [0, 0, 1, 2, 3, 3, 3], **settings)
    torch.testing.assert_close(loss(z, targets, "none"), cross_entropy(z, targets))
    torch.testing.assert_close(loss(z, targets), cross_entropy(z, targets).mean())


def test_weighted_bce_by_hand():
    """Two of five examples have the first label, so it weighs 3/2; none has the second: it would weigh 5."""
    labels = np.array([[1, 0], [1, 0], [0, 0], [0, 0], [0, 0]], np.float32)
    examples = Examples({"x": labels, "y": labels}, np.arange(5))
    loss = LOSSES["weighted-bce"](PROBLEMS["multi-label"](), examples, {})
    each = loss(torch.zeros(3, 2), torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]), "none")
    assert (each / np.log(2)).tolist() == pytest.approx([(1.5 + 5) / 2, (1.5 + 1) / 2, 1.0])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_loss_of_what_is_certain_has_a_gradient(gamma):
    z = torch.tensor([[200.0, 0.0], [0.0, 200.0], [0.0, 0.0]], requires_grad=True)
    loss = LOSSES["focal"](settings={"gamma": gamma})(z, torch.tensor([0, 0, 1]), "none")
    assert loss.tolist() == pytest.approx([0, 200, 0.5**gamma * np.log(2)])
    loss.sum().backward()
    assert z.grad[0].tolist() == [0, 0]
    assert z.grad[1].tolist() == pytest.approx([-1, 1])


def test_which_losses_and_objectives_need_classes():
    assert {name for name, loss in LOSSES.items() if loss.of_classes} == {
        "calc", "class-balanced", "focal", "label-smoothing", "logit-adjusted",
    }  # fmt: skip
    assert {name for name, objective in OBJECTIVES.items() if objective.of_classes} == {
        "fedgkd", "fedlc", "fedntd", "fedpac", "fedproto", "fedrs", "fedsat",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["class-balanced", "logit-adjusted"])
def test_without_examples_counts_are_refused(name):
    with pytest.raises(ValueError, match="needs the client's examples"):
        LOSSES[name]()(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))


@pytest.mark.parametrize("name", WRITTEN)
def test_held_out_examples_are_scored_by_the_usual_loss(name):
    client = make_client("shared", False, "plain", name, SETTINGS[name])
    output = CONFIG | {"client-lr": 0.0, "eval-splits": "test"}
    metrics = client.fit(client.get_parameters({}), output)[2]
    inputs, targets = client.task.train.prepared(np.arange(40))
    z = forward(client.task.model.state_dict(), inputs)[1]
    assert metrics["loss"] == pytest.approx(cross_entropy(z, targets).mean().item())
    assert metrics["train-loss"] == pytest.approx(WRITTEN[name](z, targets).mean().item(), rel=1e-3)


class OwnFocal(LOSSES["focal"]):
    """Says nothing of itself."""

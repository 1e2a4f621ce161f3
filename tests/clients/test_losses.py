"""Losses against their formulas, and what they are where a setting says nothing; with every objective."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clients import LOSSES, PROBLEMS, Examples, FedAvgClient, LocalTraining
from clients import OBJECTIVES as BUILT_IN

from .helpers import CONFIG
from .helpers import make_client as small_client
from .objectives.test_formulas import RHO, uphill
from .written import CASES, CLASSES, COUNTS, TRAINING, At, check_rounds, cross_entropy, forward, make_client

OBJECTIVES = (
    "plain",
    "fedprox",
    "moon",
    "fedrs",
    "fedlc",
    "fedsam",
    "fedspeed",
    "fedntd",
    "fedgkd",
    "feddecorr",
)
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


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize(("policy", "batch_norm"), CASES)
def test_three_rounds_are_those_of_the_formula(name, policy, batch_norm):
    client = make_client(policy, batch_norm, "plain", name, SETTINGS[name], TRAINING)
    check_rounds(client, formula_of(name))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WRITTEN)
def test_fedsam_goes_uphill_and_down_on_the_same_loss(name):
    client = make_client("fedbn", True, "fedsam", name, SETTINGS[name], TRAINING)
    check_rounds(client, formula_of(name), uphill, {"rho": RHO})


def loss_of(name, labels, **settings):
    examples = Examples({"x": np.zeros(len(labels)), "y": np.array(labels)}, np.arange(len(labels)))
    return LOSSES[name](examples=examples, settings=settings)


logits = st.integers(0, 2**32 - 1).map(lambda seed: torch.from_numpy(np.random.default_rng(seed).normal(
    scale=4, size=(5, CLASSES))))  # fmt: skip
answers = st.lists(st.integers(0, CLASSES - 1), min_size=5, max_size=5).map(torch.tensor)


@pytest.mark.sampled(3)
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


@pytest.mark.parametrize("name", ["class-balanced", "logit-adjusted"])
@settings(max_examples=20)
@given(logits, answers, st.integers(1, 9))
def test_as_many_examples_of_each_class_leave_cross_entropy(name, z, targets, times):
    loss = loss_of(name, list(range(CLASSES)) * times)
    torch.testing.assert_close(loss(z, targets, "none"), cross_entropy(z, targets))


def test_class_balanced_by_hand():
    """Two examples of class 0, one of class 1, beta 1/2: (1/2) / (3/4) = 2/3 and 1, scaled to 0.8 and 1.2."""
    z, targets = torch.zeros(3, 3), torch.tensor([0, 1, 0])
    each = loss_of("class-balanced", [0, 0, 1], beta=0.5)(z, targets, "none")
    assert (each / np.log(3)).tolist() == pytest.approx([0.8, 1.2, 0.8])


def test_logit_adjusted_by_hand():
    """Shares 3/4, 1/4 and 1/4 for the class that is not there: of equal logits 3/5, 1/5 and 1/5 is left."""
    each = loss_of("logit-adjusted", [0, 0, 0, 1])(torch.zeros(3, 3), torch.arange(3), "none")
    assert each.tolist() == pytest.approx([-np.log(0.6), -np.log(0.2), -np.log(0.2)])


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


def test_which_losses_need_classes():
    assert {name for name, loss in LOSSES.items() if loss.of_classes} == {
        "calc", "class-balanced", "focal", "label-smoothing", "logit-adjusted",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["class-balanced", "logit-adjusted"])
def test_without_examples_counts_are_refused(name):
    with pytest.raises(ValueError, match="needs the client's examples"):
        LOSSES[name]()(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        (objective, loss)
        for objective, loss in product(OBJECTIVES, SETTINGS)
        if loss in BUILT_IN[objective].requires.get("loss", SETTINGS)
    ],
)
def test_every_objective_learns_with_every_loss(objective, loss):
    """Five rounds on classes that can be told: the usual loss, at which all are scored, falls."""
    client = small_client(FedAvgClient, training=LocalTraining(2, 8), objective=objective)
    examples = client.task.train
    examples.columns["y"][:] = examples.columns["x"].reshape(40, 4)[:, :3].argmax(1)
    client.task.__dict__.update(evaluation={"test": examples}, loss=LOSSES[loss])
    parameters, losses = client.get_parameters({}), []
    for server_round in range(1, 6):
        output = CONFIG | {"server-round": server_round, "eval-splits": "test"}
        parameters, _, metrics = client.fit(parameters, output)
        client.memory.commit()
        losses.append(metrics["loss"])
        assert np.isfinite(metrics["train-loss"])
    assert losses[-1] < 0.8 * losses[0]


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

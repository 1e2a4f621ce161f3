"""FedLC, FedRS, FedNTD, FedGKD, FedSat and CALC: by hand, and what becomes of classes that a client lacks."""

import copy

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn

from clients import LOSSES, OBJECTIVES, Examples, Local, Loss
from clients.problems import Classification
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError

from ..helpers import CONFIG, make_examples
from ..helpers import make_client as small_client


def loss_of(name, logits, targets, labels, reduction="mean", **settings):
    """The objective's loss of logits themselves, and the output."""
    examples = Examples({"x": np.zeros(len(labels)), "y": np.array(labels)}, np.arange(len(labels)))
    model = nn.Identity()
    objective = OBJECTIVES[name]({}, settings, local=Local(model, examples, Loss(examples=examples)))
    return objective.loss(model, logits, torch.as_tensor(targets), reduction)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_great_logits_do_not_overflow(dtype):
    """As e^z, summed and divided, does in other code: from 89 on in float32."""
    logits = torch.tensor([[300.0, 0.0, 500.0]], dtype=dtype, requires_grad=True)
    loss, _ = loss_of("fedlc", logits, [1], [0, 1], tau=1.0)
    loss.backward()
    assert loss.item() == pytest.approx(300)
    assert logits.grad[0].tolist() == [1, -1, 0]


@pytest.mark.parametrize("loss", ["label-smoothing", "calc"])
def test_a_loss_that_wants_every_class_is_refused(loss):
    with pytest.raises(UserError, match=f"loss: '{loss}' is not allowed; expected"):
        run_config({"objective": "fedlc", "loss": loss})


def test_of_one_model_nothing_is_remembered():
    client = small_client("shared", RecordDict(), objective="fedgkd")
    client.fit(client.get_parameters({}), CONFIG | {"gkd-models": 1})
    client.memory.commit()
    assert client.memory.read("fedgkd") is None


E = 1e-6


def confusion_by_hand(model, batches, mu, confusion=None, counts=None):
    """Example by example and class by class."""
    confusion = np.zeros((3, 3)) if confusion is None else confusion
    counts = np.zeros(3) if counts is None else counts
    for inputs, targets in batches:
        p = np.exp(model(inputs).detach().double().numpy())
        p /= p.sum(1, keepdims=True)
        batch, seen = np.full((3, 3), E), np.zeros(3)
        for row, y in zip(p, targets, strict=True):
            batch[y] += row
            seen[y] += 1
        confusion, counts = mu * confusion + (1 - mu) * batch, mu * counts + (1 - mu) * seen
    return confusion, counts


def test_the_scores_are_the_share_of_wrong_predictions_over_two_rounds():
    """At a rate of 0 the model stays but for its statistics, which the passes in training mode do not use."""
    client = small_client("shared", objective="fedsat")
    config = CONFIG | {"client-lr": 0.0, "confusion-mu": 0.8}
    model = copy.deepcopy(client.task.model).train()
    confusion = counts = None
    for server_round in (1, 2):
        update = client.fit(client.get_parameters({}), config | {"server-round": server_round})
        client.memory.commit()
        rng = np.random.default_rng([0, 0, server_round])
        rng.integers(2**63)
        batches = client.task.train.load(list(client.task.train.batches(8, rng)))
        confusion, counts = confusion_by_hand(model, batches, 0.8, confusion, counts)
        expected = [(confusion[i].sum() - confusion[i, i]) / (counts[i] + E) for i in range(3)]
        np.testing.assert_allclose(update.records["struggle"]["scores"], expected, rtol=1e-4)


def test_a_class_that_a_client_lacks_is_a_whole_struggle():
    client = small_client("shared", objective="fedsat")
    client.task.train.columns["y"][:] = 1
    scores = client.fit(client.get_parameters({}), CONFIG).records["struggle"]["scores"]
    assert list(scores[[0, 2]]) == [1, 1]
    assert 0 < scores[1] < 1


def margins_by_hand(confusion):
    n = len(confusion)
    both = [[(confusion[i, j] + confusion[j, i]) / 2 for j in range(n)] for i in range(n)]
    rows = np.array([[0 if i == j else both[i][j] / sum(both[i]) for j in range(n)] for i in range(n)])
    return rows / rows.max()


@pytest.mark.parametrize("seed", range(3))
def test_calc_is_its_formula_example_by_example(seed):
    rng = np.random.default_rng(seed)
    examples = make_examples(seed=seed)
    y = examples.columns["y"]
    logits = torch.from_numpy(rng.normal(size=(40, 3))).requires_grad_()
    confusion = rng.random((3, 3))
    loss = LOSSES["calc"](Classification(), examples)
    loss.confusion = torch.from_numpy(confusion)
    found = loss(logits, torch.from_numpy(y))
    q = np.array([(y == c).mean() for c in range(3)])
    d = margins_by_hand(confusion)
    softmax = np.exp(confusion) / np.exp(confusion).sum(1, keepdims=True)
    m = margins_by_hand(softmax)

    def written(values):
        total = 0.0
        for row, label in zip(values, y, strict=True):
            z = row - 0.1 * q**-0.25
            contrast = -z[label] + np.log(np.exp(z + d[label]).sum())
            usual = z - 0.5 * m[label]
            total += 0.95 * contrast + 0.05 * (-usual[label] + np.log(np.exp(usual).sum()))
        return total / len(y)

    values = logits.detach().numpy()
    assert found.item() == pytest.approx(written(values), rel=1e-9)
    found.backward()
    for i, j in ((0, 0), (7, 2), (39, 1)):
        step = np.zeros_like(values)
        step[i, j] = 1e-6
        numeric = (written(values + step) - written(values - step)) / 2e-6
        assert logits.grad[i, j].item() == pytest.approx(numeric, abs=1e-7)


def test_calc_without_a_confusion_has_no_margins():
    examples = make_examples()
    targets = torch.from_numpy(examples.columns["y"])
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 3)))
    q = torch.bincount(targets).double() / 40
    expected = torch.nn.functional.cross_entropy(logits - 0.1 * q**-0.25, targets)
    found = LOSSES["calc"](Classification(), examples)(logits, targets)
    assert found.item() == pytest.approx(expected.item(), rel=1e-9)

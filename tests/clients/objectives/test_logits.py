"""FedLC, FedRS, FedNTD, FedGKD, FedSat and CALC: by hand, and what becomes of classes that a client lacks."""

import copy

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from clients import LOSSES, OBJECTIVES, Examples, FedAvgClient, Local, Loss
from clients.problems import Classification
from fedbn_flower.config.making import run_config
from fedbn_flower.core.errors import UserError

from ..helpers import CONFIG, make_examples
from ..helpers import make_client as small_client
from ..written import (
    CASES,
    LOCAL,
    RATE,
    TRAINING,
    At,
    cross_entropy,
    entries_like,
    forward,
    here,
    make_client,
    trained,
    usual,
)


def loss_of(name, logits, targets, labels, reduction="mean", **settings):
    """The objective's loss of logits themselves, and the output."""
    examples = Examples({"x": np.zeros(len(labels)), "y": np.array(labels)}, np.arange(len(labels)))
    model = nn.Identity()
    objective = OBJECTIVES[name]({}, settings, local=Local(model, examples, Loss(examples=examples)))
    return objective.loss(model, logits, torch.as_tensor(targets), reduction)


def test_fedlc_by_hand():
    """16 examples of class 0 and 1 of class 1, tau 2 ln 2: margins ln 2 and ln 4, so shares 2 to 1 of z = 0.

    The class that is absent has none, and no gradient: one example of it, as a floor, would have 1/4.
    """
    logits = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    loss, output = loss_of("fedlc", logits, [1], [0] * 16 + [1], tau=2 * np.log(2))
    loss.backward()
    assert loss.item() == pytest.approx(np.log(3))
    assert logits.grad[0].tolist() == pytest.approx([2 / 3, -2 / 3, 0])
    assert torch.equal(output, logits), "what is predicted has no margins"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_great_logits_do_not_overflow(dtype):
    """As e^z, summed and divided, does in other code: from 89 on in float32."""
    logits = torch.tensor([[300.0, 0.0, 500.0]], dtype=dtype, requires_grad=True)
    loss, _ = loss_of("fedlc", logits, [1], [0, 1], tau=1.0)
    loss.backward()
    assert loss.item() == pytest.approx(300)
    assert logits.grad[0].tolist() == [1, -1, 0]


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 10), st.integers(1, 9))
def test_as_many_examples_of_each_class_leave_cross_entropy(seed, tau, times):
    rng = np.random.default_rng(seed)
    logits, targets = torch.from_numpy(rng.normal(scale=3, size=(6, 4))), rng.integers(0, 4, 6)
    expected = cross_entropy(logits, torch.from_numpy(targets))
    labels = [0, 1, 2, 3] * times
    torch.testing.assert_close(loss_of("fedlc", logits, targets, labels, "none", tau=tau)[0], expected)
    torch.testing.assert_close(loss_of("fedlc", logits, targets, labels, tau=tau)[0], expected.mean())


@pytest.mark.parametrize("loss", ["label-smoothing", "calc"])
def test_a_loss_that_wants_every_class_is_refused(loss):
    with pytest.raises(UserError, match=f"loss: '{loss}' is not allowed; expected"):
        run_config({"objective": "fedlc", "loss": loss})


@pytest.mark.parametrize("tau", [0.0, -1.0, float("inf")])
def test_a_margin_is_more_than_nothing(tau):
    with pytest.raises(UserError, match="lc-tau"):
        run_config({"objective": "fedlc", "lc-tau": tau})


def test_a_class_that_a_client_lacks_is_scaled_and_not_masked():
    """Labels 0, 0, 1, logits (ln 2, ln 4, ln 16), a 1/2: scales (1, 3/4, 1/2), numerators (2, 2^1.5, 4).

    The gradient of the absent class's logit is a p = 1/2 4 / (6 + 2^1.5); under a mask it would be 0.
    """
    logits = torch.tensor([[2.0, 4.0, 16.0]]).log().requires_grad_()
    loss, output = loss_of("fedrs", logits, [0], [0, 0, 1], a=0.5)
    loss.backward()
    total = 6 + 2**1.5
    assert loss.item() == pytest.approx(np.log(total / 2))
    assert logits.grad[0].tolist() == pytest.approx([2 / total - 1, 0.75 * 2**1.5 / total, 2 / total])
    assert torch.equal(output, logits), "what is predicted is not restricted"


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_with_a_one_it_is_cross_entropy(seed, labels):
    rng = np.random.default_rng(seed)
    logits, targets = torch.from_numpy(rng.normal(scale=3, size=(6, 4))), rng.integers(0, 4, 6)
    expected = cross_entropy(logits, torch.from_numpy(targets))
    torch.testing.assert_close(loss_of("fedrs", logits, targets, labels, "none", a=1.0)[0], expected)
    torch.testing.assert_close(loss_of("fedrs", logits, targets, labels, a=1.0)[0], expected.mean())


@settings(max_examples=20)
@given(st.integers(1, 5), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_shares_alone_count_and_alike_ones_change_nothing(times, a, seed):
    """The client's data many times over, and one with as many examples of each class."""
    rng = np.random.default_rng(seed)
    logits, targets = torch.from_numpy(rng.normal(size=(6, 4))), rng.integers(0, 4, 6)
    labels = [0, 0, 0, 1, 3]
    once, often = (loss_of("fedrs", logits, targets, labels * n, a=a)[0] for n in (1, times))
    torch.testing.assert_close(once, often)
    balanced = loss_of("fedrs", logits, targets, [0, 1, 2, 3] * times, a=a)[0]
    torch.testing.assert_close(balanced, cross_entropy(logits, torch.from_numpy(targets)).mean())


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
def test_fedntd_by_hand(temperature):
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


GAMMA, T, M = 0.9, 2.0, 3
SETTINGS = {"gkd-gamma": GAMMA, "gkd-temperature": T, "gkd-models": M}


def distilled(at: At):
    """`previous` is the teacher, in evaluation mode."""
    q = (forward(at.w, at.inputs)[1] / T).softmax(1)
    teacher = (forward(at.previous, at.inputs, train=False)[1] / T).softmax(1)
    return usual(at) + GAMMA / 2 * T**2 * (teacher * (teacher / q).log()).sum(1).mean()


def mean_of(models):
    """Of the entries; counts are the last one's."""
    return {
        n: sum(model[n] for model in models) / len(models) if e.is_floating_point() else e
        for n, e in models[-1].items()
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_five_rounds_are_those_of_the_formula(case):
    """The teacher is of one, two, three and again three models, this round's among them."""
    client = make_client(*case, "fedgkd", training=TRAINING)
    initial = {n: e.clone() for n, e in client.task.model.state_dict().items()}
    own, received = {n: initial[n] for n in LOCAL[case[0]] if n in initial}, []
    for server_round in (1, 2, 3, 4, 5):
        x = entries_like(initial, 5 + server_round) | own
        received = [*received, x][-M:]
        told = CONFIG | {"server-round": server_round, "client-lr": RATE} | SETTINGS
        arrays, _, _ = client.fit([x[n].numpy() for n in client.shared_names], told)
        client.memory.commit()
        w = trained(client, distilled, here, x, mean_of(received), server_round)
        own = {n: w[n] for n in own}
        for name, array in zip(client.shared_names, arrays, strict=True):
            torch.testing.assert_close(torch.from_numpy(array), w[name], atol=1e-9, rtol=0)
        assert len(client.memory.read("fedgkd")) == len(x) * min(M - 1, server_round)


def test_of_one_model_nothing_is_remembered():
    client = small_client(FedAvgClient, RecordDict(), objective="fedgkd")
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
    client = small_client(FedAvgClient, objective="fedsat")
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
    client = small_client(FedAvgClient, objective="fedsat")
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

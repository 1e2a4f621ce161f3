"""FedRoD: both heads against their formulas, and two evaluations."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn
from torch.nn import functional

from clients import Classification, FedRoDClient, LocalTraining, Regression
from clients.policies.fedrod import Balanced

from ..helpers import CONFIG, make_client, make_examples, small_model
from .by_hand import NAMES, PULLED, arrays_of, of_batch, whole


def written(entries, p, x, y, steps):
    """Body and generic head by balanced softmax; the personal one by the sum, on what body and head gave."""
    w = {n: torch.tensor(entries[n], requires_grad=True) for n in NAMES}
    p = [torch.tensor(part, requires_grad=True) for part in p]
    counts = torch.bincount(y, minlength=3).double()
    for _ in range(steps):
        z = x @ w["1.weight"].T + w["1.bias"]
        mean, variance = of_batch(z, w)
        z = ((z - mean) / (variance + 1e-5).sqrt() * w["2.weight"] + w["2.bias"]).relu()
        generic = z @ w["4.weight"].T + w["4.bias"]
        weighted = counts * generic.exp()
        loss = -(weighted[range(len(y)), y] / weighted.sum(1)).log().mean()
        both = generic.detach() + z.detach() @ p[0].T + p[1]
        personal = torch.autograd.grad(functional.cross_entropy(both, y), p)
        gradients = torch.autograd.grad(loss, list(w.values()))
        for one, gradient in zip((*w.values(), *p), (*gradients, *personal), strict=True):
            one.data -= 0.1 * gradient
    return {n: e.detach().numpy() for n, e in w.items()}, [part.detach().numpy() for part in p]


def test_two_rounds_are_those_of_the_formulas():
    """The personal head begins at 0, and goes on from where it was."""
    client = make_client("fedrod", RecordDict(), training=LocalTraining(3, 0))
    x, y = whole(client)
    start, p = arrays_of(client), [np.zeros((3, 5)), np.zeros(3)]
    for server_round in (1, 2):
        received = [start[n].astype(client.task.initial[n].dtype) for n in client.shared_names]
        update = client.fit(received, CONFIG | {"server-round": server_round})
        client.memory.commit()
        expected, p = written(start, p, x, y, 3)
        sent, kept = update.arrays.by_name(), client.memory.read("fedrod")
        for name, entry in expected.items():
            np.testing.assert_allclose(sent[name], entry, atol=1e-5)
        for name, entry in zip(("4.weight", "4.bias"), p, strict=True):
            np.testing.assert_allclose(kept[name], entry, atol=1e-5)
        start = start | {n: np.float64(a) + 0.1 for n, a in sent.items() if n in NAMES}


@pytest.mark.parametrize("name", ["fedrod", "fedbn+fedrod", "silobn+fedrod"])
def test_it_reports_of_the_sum_and_of_the_generic_head(name):
    client = make_client(name, RecordDict(), training=LocalTraining(3, 8))
    update = client.fit(client.get_parameters({}), PULLED)
    client.memory.commit()
    kept = client.memory.read("fedrod")
    _, _, metrics = client.evaluate(update.arrays, PULLED)
    for found in (metrics, update.metrics):
        assert found["generic-loss"] != found.get("loss")
        assert 0 <= found["generic-accuracy"] <= 1
    assert metrics["generic-loss"] == update.metrics["generic-loss"]
    sent = update.arrays.by_name()
    model, test = client.task.model, client.task.evaluation["test"]
    entries = {n: torch.from_numpy(a) for n, a in {**(client.memory.read("local") or {}), **sent}.items()}
    for prefix, personal in (("generic-", 0), ("", 1)):
        added = {n: entries[n] + personal * torch.from_numpy(a) for n, a in kept.items()}
        model.load_state_dict(entries | added)
        x, y = test.prepared(np.arange(len(test)))
        expected = functional.cross_entropy(model.eval()(x), y).item()
        found = {**metrics, "loss": client.evaluate(update.arrays, PULLED)[0]}[prefix + "loss"]
        assert found == pytest.approx(expected, rel=1e-5)


def test_who_never_trained_or_is_new_predicts_by_the_generic_head():
    client = make_client("fedrod", RecordDict())
    start = client.get_parameters({})
    for config in (PULLED, PULLED | {"own-statistics": False}):
        loss, _, metrics = client.evaluate(start, config)
        assert loss == metrics["generic-loss"]
    client.fit(start, CONFIG)
    client.memory.commit()
    loss, _, metrics = client.evaluate(start, PULLED | {"own-statistics": False})
    assert loss == metrics["generic-loss"]


def test_a_model_may_be_its_head():
    client = make_client("fedrod", RecordDict(), nn.Linear(4, 3))
    client.task.__dict__["train"] = make_examples(shape=(4,))
    client.fit(client.get_parameters({}), CONFIG)
    assert client.memory.read("fedrod").keys() == {"weight", "bias"}


def test_both_evaluations_are_fine_tuned_from_where_each_begins():
    client = make_client("fedrod", RecordDict())
    update = client.fit(client.get_parameters({}), CONFIG)
    client.memory.commit()
    plain, tuned = (client.evaluate(update.arrays, PULLED | more) for more in ({}, {"fine-tune": 3}))
    assert plain[0] != tuned[0]
    assert plain[2]["generic-loss"] != tuned[2]["generic-loss"]


def test_a_class_that_a_client_lacks_is_left_out():
    """n = 0: e^z times 0, and no gradient that is not finite; as another class, however great its logit."""
    loss = Balanced(Classification(), make_examples(9, classes=2))
    output = torch.tensor([[1.0, 2.0, 300.0]], requires_grad=True)
    found = loss(output, torch.tensor([0]))
    n = loss.class_counts(output).tolist()
    expected = -np.log(n[0] * np.e / (n[0] * np.e + n[1] * np.e**2))
    assert found.item() == pytest.approx(expected, rel=1e-5)
    found.backward()
    assert output.grad.isfinite().all()
    assert output.grad[0, 2] == 0


def frozen_head():
    model = small_model()
    for p in model[4].parameters():
        p.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "problem", "why"),
    [
        (small_model(), Regression(), "it balances classes, and there are none to choose from"),
        (frozen_head(), Classification(), "the head '4' is frozen"),
        (nn.Sequential(small_model(), nn.Softmax(1)), Classification(), "something comes after its head"),
        (
            nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten()),
            Classification(),
            "the head '0' is no linear layer, so that two of them add up to one",
        ),
        (small_model(), Classification(), ""),
    ],
)
def test_which_models_it_takes(model, problem, why):
    assert FedRoDClient.misfit(model.eval(), problem, torch.zeros(2, 1, 2, 2)) == why

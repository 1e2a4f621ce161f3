"""FedProto on the client: the loss and the prototypes against formulas of their own."""

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

from clients import FedAvgClient, Received

from ..helpers import CONFIG, make_client, make_examples, small_model

KNOWN = np.array([1, 0, 1], np.float32)


def body(model, inputs):
    """What goes into the last layer, in evaluation mode, layer by layer."""
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        return model[:-1](inputs)


def received(client):
    prototypes = np.random.default_rng(3).normal(size=(3, 5)).astype(np.float32)
    records = {"prototypes": {"prototypes": prototypes, "known": KNOWN}}
    return Received(client.get_parameters({}).by_name(), records), prototypes


def test_the_loss_is_the_mean_distance_to_the_known_prototypes():
    client = make_client(FedAvgClient, objective="fedproto")
    arrays, prototypes = received(client)
    run = client.begin_run(
        dict(client.task.model.named_parameters()), CONFIG | {"proto-lambda": 0.7}, arrays.records
    )
    inputs, targets = make_examples().prepared(np.arange(12))
    model = client.task.model.train()
    expected_model = copy.deepcopy(model)
    z = expected_model[:-1](inputs)
    f = functional.cross_entropy(expected_model[-1](z), targets)
    total = sum(
        ((z[i] - torch.from_numpy(prototypes[y])) ** 2).sum() for i, y in enumerate(targets) if KNOWN[y]
    )
    expected = f + 0.7 * total / (12 * 5)
    found, _ = run.objective.loss(model, inputs, targets)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    expected.backward()
    found.backward()
    for p, q in zip(model.parameters(), expected_model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)


def test_without_prototypes_it_trains_as_sgd_does():
    updates = [
        client.fit(client.get_parameters({}), CONFIG)
        for client in (make_client(FedAvgClient, objective=name) for name in ("fedproto", "plain"))
    ]
    for a, b in zip(updates[0].arrays, updates[1].arrays, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_sent_are_the_trained_models_features_by_class():
    """Made in evaluation mode: nothing of the model that is sent moves by it."""
    client = make_client(FedAvgClient, objective="fedproto")
    update = client.fit(client.get_parameters({}), CONFIG)
    model = small_model()
    sent = update.arrays.by_name()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in sent.items()})
    inputs, targets = client.task.train.prepared(np.arange(40))
    z = body(model, inputs)
    record = update.records["prototypes"]
    for c in range(3):
        rows = z[targets == c]
        np.testing.assert_allclose(
            record["sums"][c] / record["shares"][c], rows.mean(0), rtol=1e-4, atol=1e-6
        )
        assert record["shares"][c] == pytest.approx(len(rows) / 40)

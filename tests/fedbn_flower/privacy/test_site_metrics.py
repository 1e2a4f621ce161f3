"""Metrics that a site pays for: clipped, with noise, charged."""

import json

import numpy as np
import pytest
import torch

from clients import FedAvgClient
from fedbn_flower.privacy import accounts
from fedbn_flower.privacy.accounts import Release, composed_epsilon
from fedbn_flower.privacy.site_metrics import metrics_noise, noisy_metrics, planned, values_of_examples
from fedbn_flower.site.ledger import path_of_ledger
from tests.clients.helpers import make_client

from ..records.helpers import rows_of
from .asked import Site
from .runs import of_examples, of_local, simulated
from .test_composition import by_formula
from .test_dishonest_server import notion  # noqa: F401  # a fixture

PAID = {"dp_metrics": 2.0, "rounds": 3}


def test_each_example_has_its_accuracy_and_its_loss_up_to_a_cap():
    client = make_client(FedAvgClient)
    with torch.no_grad():
        client.task.model[-1].weight *= 100
    examples = client.task.evaluation["test"]
    found = values_of_examples(client, examples)
    inputs, labels = examples.prepared(np.arange(30))
    with torch.no_grad():
        output = client.task.model.eval()(inputs).double()
    loss = -output.log_softmax(1)[torch.arange(30), labels]
    np.testing.assert_allclose(found[:, 0], np.minimum(loss.numpy(), 5) / 5, rtol=1e-5)
    np.testing.assert_array_equal(found[:, 1], output.argmax(1) == labels)
    assert found[:, 0].max() == 1


def test_noise_is_that_of_all_evaluations_of_a_run(configured):
    """Rounds 2, 4 and 5 of five, and the test set once more: mu^2 = 4 / z^2 has epsilon 2."""
    config = of_local(configured, dp_metrics=2.0, rounds=5, evaluate_every=2, val_fraction=0.2, dp_delta=1e-5)
    assert planned(config) == 4
    assert by_formula(2 / metrics_noise(config), 1e-5) == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize(("small", "count"), [(of_local, 1), (of_examples, 30)])
def test_metrics_have_the_noise_that_is_accounted(configured, small, count):
    """Deviation z sqrt(2) of the mean of two metrics, a 30th of that where the number is public."""
    config = small(configured, dp_seed=-1, dp_metrics=30.0)
    client = make_client(FedAvgClient)
    exact = values_of_examples(client, client.task.evaluation["test"]).mean(0)
    assert 0.2 < exact[1] < 0.8
    found = np.array([noisy_metrics(config, client, "test", 1)["accuracy"] for _ in range(600)])
    deviation = metrics_noise(config) * np.sqrt(2) / count
    inside = np.abs(found - 0.5) < 0.5
    assert np.std(found[inside] - exact[1]) <= deviation * 1.1
    if count == 30:
        assert np.std(found - exact[1]) == pytest.approx(deviation, rel=0.1)


def test_paid_metrics_are_charged_until_the_budget_is_spent(notion, tmp_path):  # noqa: F811
    config = notion(**PAID)
    site = Site(config, state_dir=str(tmp_path))
    for _ in range(3):
        found = site.metrics("evaluate")
        assert set(found) == {"num-examples", "eval-examples", "loss", "accuracy"}
        assert found["num-examples"] == (1 if config.dp == "local" else 360)
        assert (0 <= found["accuracy"] <= 1, 0 <= found["loss"] <= 5) == (True, True)
    assert site.refusal("evaluate").startswith(
        "privacy: this client's budget is spent: it has answered 3 times"
    )
    written = [json.loads(line) for line in path_of_ledger(tmp_path, "client-0").read_text().splitlines()]
    assert {line["what"] for line in written} == {"metrics of test"}
    assert 1.95 < written[-1]["epsilon"] <= 2


@pytest.mark.parametrize("splits", ["train", "test,train", "test,test", ""])
def test_nobody_pays_for_training_examples(notion, splits):  # noqa: F811
    config = notion(**PAID)
    line = f"privacy: with dp {config.dp!r} this client is not evaluated on {splits!r}"
    assert Site(config).refusal("evaluate", eval_splits=splits) == line


def test_a_run_states_what_training_and_metrics_cost_together(configured, tmp_path):
    config = of_local(configured, **PAID)
    summary = simulated(config, tmp_path)
    z = metrics_noise(config)
    by_hand = [composed_epsilon([Release(1.0, count=t), Release(z, count=t)], 1e-3) for t in (1, 2, 3)]
    assert [float(row["epsilon"]) for row in rows_of(tmp_path)] == by_hand
    assert by_hand[-1] == pytest.approx(by_formula((3 + 3 / z**2) ** 0.5, 1e-3), rel=1e-6)
    assert summary["privacy"]["planned-epsilon"] == by_hand[-1] > accounts.local_epsilon(2.0, 3, 1e-3)
    assert summary["mean"]["accuracy"] >= 0

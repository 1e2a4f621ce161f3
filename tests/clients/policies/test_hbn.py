"""Hybrid BatchNorm: the layer, and the client that gathers statistics apart from training."""

import numpy as np
import pytest
import torch
from torch import nn

from clients import HBNClient, LocalTraining
from clients.modules.layers import HybridBatchNorm

from ..helpers import CONFIG, make_client
from .by_hand import arrays_of, train, whole


def hybrid_model():
    torch.manual_seed(0)
    layer = HybridBatchNorm(5, 1e-5, 0.1, affine=True)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), layer, nn.ReLU(), nn.Linear(5, 3))


def mix(entries):
    mean, variance = (torch.tensor(entries[f"2.running_{kind}"]) for kind in ("mean", "var"))

    def normalise(z, w):
        a = 1 / (1 + torch.exp(-w["2.factor"]))
        return (1 - a) * mean + a * z.mean(0), (1 - a) * variance + a * z.var(0, correction=0)

    return normalise


def fitted(batch_size=0, epochs=3):
    client = make_client(
        HBNClient, None, hybrid_model(), 0, LocalTraining(epochs=epochs, batch_size=batch_size)
    )
    entries = arrays_of(client) | {
        "2.running_mean": np.linspace(-1, 1, 5),
        "2.running_var": np.linspace(0.5, 2, 5),
    }
    received = [entries[name].astype(client.task.initial[name].dtype) for name in client.shared_names]
    return client, entries, client.fit(received, CONFIG)


def test_a_round_by_hand():
    """What is learnt by formula, the factor of the mix too, which stays at home."""
    client, entries, update = fitted()
    sent = update.arrays.by_name()
    expected, _ = train(entries, *whole(client), 0.1, 3, mix(entries))
    factor = client.memory.read("local")["2.factor"]
    assert np.abs(factor).max() > 1e-4
    np.testing.assert_allclose(factor, expected.pop("2.factor"), atol=1e-6)
    assert "2.factor" not in sent
    for name, array in expected.items():
        np.testing.assert_allclose(sent[name], array, atol=2e-6)


@pytest.mark.parametrize("batch_size", [0, 7])
def test_statistics_are_of_the_received_model_over_all_examples(batch_size):
    """The code of the paper's authors passes one batch of 64; the trained model's statistics are others."""
    client, entries, update = fitted(batch_size)
    x, _ = whole(client)
    z = x.numpy() @ entries["1.weight"].T + entries["1.bias"]
    sent = update.arrays.by_name()
    np.testing.assert_allclose(sent["2.running_mean"], z.mean(0), atol=1e-6)
    second = ((z - entries["2.running_mean"]) ** 2).mean(0)
    np.testing.assert_allclose(sent["2.running_var"], second, rtol=1e-5)
    assert sent["2.num_batches_tracked"] == 0
    assert client.task.model[2].momentum == 0.1
    np.testing.assert_allclose(
        client.task.model[2].running_mean.numpy(), entries["2.running_mean"], rtol=1e-6
    )


def test_more_examples_than_one_batch_of_evaluation():
    """Of 2500 examples in batches of at most 1000, to the rounding of float32."""
    client = make_client(HBNClient, None, hybrid_model(), 0, LocalTraining(batch_size=500))
    rng = np.random.default_rng(0)
    images = rng.normal(100, 1, (2500, 1, 2, 2)).astype(np.float32)
    client.task.train.__dict__.update(
        columns={"x": images, "y": rng.integers(0, 3, 2500)}, rows=np.arange(2500)
    )
    before = arrays_of(client)
    sent = client.fit(client.get_parameters({}), CONFIG | {"client-lr": 1e-6}).arrays.by_name()
    z = images.reshape(2500, 4).astype(np.float64) @ before["1.weight"].T + before["1.bias"]
    np.testing.assert_allclose(sent["2.running_mean"], z.mean(0), rtol=1e-5)
    np.testing.assert_allclose(sent["2.running_var"], (z**2).mean(0), rtol=1e-4)


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4), (4, 3, 2, 2), (2, 3, 2, 2, 2)])
def test_the_layer_is_batch_norm_in_evaluation_and_with_the_whole_share_in_training(shape):
    hybrid, plain = (
        HybridBatchNorm(3, 1e-5, 0.1, True),
        {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)](3),
    )
    nn.init.constant_(hybrid.factor, 40)  # a = 1
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for mode in (True, True, False):
        torch.testing.assert_close(hybrid.train(mode)(x), plain.train(mode)(x))
    torch.testing.assert_close(hybrid.running_var, plain.running_var)
    torch.testing.assert_close(hybrid.running_mean, plain.running_mean)
    assert hybrid.num_batches_tracked == plain.num_batches_tracked == 2


def test_one_example_trains():
    layer = HybridBatchNorm(3, 1e-5, 0.1, True)
    assert layer(torch.ones(1, 3)).isfinite().all()
    assert layer.running_var.tolist() == [1, 1, 1]


def test_what_stays_at_home_is_found_by_type():
    model = nn.ModuleDict({"norm": HybridBatchNorm(2, 1e-5, 0.1, True), "factor": nn.Linear(2, 2)})
    assert HBNClient.local_entries(model) == {"norm.factor"}
    assert HBNClient.local_entries(nn.Linear(2, 2)) == set()

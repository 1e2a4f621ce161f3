"""FedTAN at one client: its first batch, the steps after it, and models that it does not take."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from clients import OBJECTIVES, LocalTraining, Received
from clients.modules.layers import HybridBatchNorm

from ..helpers import CONFIG, batch_statistics, make_client, small_model


def noisy(inputs, targets):
    return inputs + torch.rand_like(inputs), targets


def test_questions_are_about_the_batch_that_is_trained_first():
    """With the same order, augmentation and dropout; the loss's own value is what is reported."""
    model = nn.Sequential(*small_model(), nn.Dropout(0.5))
    client = make_client("shared", model=model, objective="fedtan")
    client.task = replace(client.task, train=replace(client.task.train, augment=noisy))
    passes = []
    model.register_forward_hook(lambda _, inputs, output: passes.append((inputs[0], output.detach())))
    entries = {n: e.numpy().copy() for n, e in model.state_dict().items()}
    answer = client.first_answer(Received(entries, {}), CONFIG)["batch-statistics"]
    values = passes[0][0].flatten(1) @ torch.from_numpy(entries["1.weight"]).T + torch.from_numpy(
        entries["1.bias"]
    )
    np.testing.assert_allclose(answer["shares"], [8 / 40, 8 / 40])
    np.testing.assert_allclose(answer["0:2.running_mean"], 8 / 40 * values.mean(0), rtol=1e-5)
    of_batch = {"0:2.running_mean": values.mean(0), "0:2.running_var": values.var(0, correction=0)}
    known = batch_statistics() | {name: x.numpy() for name, x in of_batch.items()}
    update = client.fit(Received(entries, {"batch-statistics": known | {"shares": np.full(2, 0.2)}}), CONFIG)
    assert update.metrics["local-steps"] == 5
    assert torch.equal(passes[0][0], passes[1][0])
    torch.testing.assert_close(passes[0][1], passes[1][1])
    assert not torch.equal(passes[1][0], passes[2][0])


def test_steps_after_the_first_are_plain_ones():
    """As in the authors' code: with a batch's own statistics, which the running ones follow."""
    client = make_client("shared", objective="fedtan", training=LocalTraining(1, 20))
    entries = {n: e.numpy().copy() for n, e in client.task.model.state_dict().items()}
    seen = []
    client.task.model[1].register_forward_hook(lambda _, inputs, output: seen.append(output.detach()))
    config = CONFIG | {"client-lr": 0.0}
    known = batch_statistics() | {"0:2.running_mean": np.full(5, 7, np.float32)}
    got = client.fit(Received(entries, {"batch-statistics": known}), config).arrays.by_name()
    np.testing.assert_allclose(got["2.running_mean"], 0.9 * 0.7 + 0.1 * seen[1].mean(0), rtol=1e-6)
    assert got["2.num_batches_tracked"] == 2
    with pytest.raises(ValueError, match="needs the record 'batch-statistics', which was not received"):
        client.fit(Received(entries, {}), config)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.BatchNorm1d(5), ""),
        (nn.LayerNorm(5), "it has no BatchNorm layer that trains"),
        (nn.BatchNorm1d(5).eval(), "it has no BatchNorm layer that trains"),
        (
            nn.Sequential(nn.BatchNorm1d(5), nn.BatchNorm1d(5, track_running_stats=False)),
            "its BatchNorm '2.1'",
        ),
        (HybridBatchNorm(5, 1e-5, 0.1, True), "its layer '2', HybridBatchNorm, is no plain BatchNorm"),
    ],
)
def test_which_models_it_takes(layer, why):
    model = small_model()
    model[2] = layer
    found = OBJECTIVES["fedtan"].misfit(model)
    assert found.startswith(why)
    assert bool(found) == bool(why)

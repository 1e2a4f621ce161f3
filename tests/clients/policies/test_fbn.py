"""Federated BatchNorm: clients train by what they received, and gather what the server pools."""

import numpy as np
import pytest

from clients import FBNClient, LocalTraining
from clients.modules.moments import pooled

from ..helpers import CONFIG, make_client
from .by_hand import arrays_of, of_received, train, whole


def fitted(objective="plain", epochs=3, mu=1.0):
    client = make_client(FBNClient, None, None, 0, LocalTraining(epochs=epochs, batch_size=0), objective)
    entries = arrays_of(client) | {
        "2.running_mean": np.linspace(-1, 1, 5),
        "2.running_var": np.linspace(0.5, 2, 5),
    }
    received = [entries[name].astype(client.task.initial[name].dtype) for name in client.shared_names]
    return client, entries, client.fit(received, CONFIG | {"mu": mu, "moon-temperature": 0.5})


def test_a_round_by_hand():
    client, entries, update = fitted()
    sent = update.arrays.by_name()
    expected, seen = train(entries, *whole(client), 0.1, 3, of_received(entries))
    for name, array in expected.items():
        np.testing.assert_allclose(sent[name], array, atol=2e-6)
    z = np.concatenate(seen)
    np.testing.assert_allclose(sent["2.running_mean"], z.mean(0), atol=1e-5)
    second = ((z - entries["2.running_mean"]) ** 2).mean(0)
    np.testing.assert_allclose(sent["2.running_var"], second, rtol=1e-5)
    assert sent["2.num_batches_tracked"] == 0


def test_it_evaluates_what_it_trained_by_what_it_received():
    """Moments are for the server: the client's own model has the statistics that normalised its training."""
    client, entries, _ = fitted()
    statistics = client.task.model[2]
    np.testing.assert_allclose(statistics.running_mean.numpy(), entries["2.running_mean"], rtol=1e-6)
    np.testing.assert_allclose(statistics.running_var.numpy(), entries["2.running_var"], rtol=1e-6)


def test_passes_of_other_models_are_not_gathered():
    """From the second round on, MOON passes each batch through the received and the previous model as well.
    Of a weight near 0 its gradients are those of the plain objective."""
    found = []
    for objective in ("plain", "moon"):
        client, _, update = fitted(objective, 3, 1e-9)
        client.memory.commit()
        config = CONFIG | {"server-round": 2, "mu": 1e-9, "moon-temperature": 0.5}
        found.append(client.fit(list(update.arrays), config).arrays.by_name())
    for kind in ("mean", "var"):
        np.testing.assert_allclose(found[1][f"2.running_{kind}"], found[0][f"2.running_{kind}"], rtol=1e-5)


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_the_server_pools_as_if_all_were_in_one_place(share):
    """Three clients of 10, 20 and 5 values with other means: the variance of all has theirs in it. The mean
    of the variances is another, and so is one about a mean that is already blended with the old; both of
    them are found elsewhere."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(5 * i, 1 + i, size=(n, 2)) for i, n in enumerate((10, 20, 5))]
    m0, v0 = np.array([3.0, -4.0]), np.array([2.0, 9.0])
    weights = np.array([10, 20, 5]) / 35
    mean = sum(p * part.mean(0) for p, part in zip(weights, parts, strict=True))
    second = sum(p * ((part - m0) ** 2).mean(0) for p, part in zip(weights, parts, strict=True))
    found = pooled(mean, second, {"running_mean": m0, "running_var": v0}, share)
    z = np.concatenate(parts)
    np.testing.assert_allclose(found[0], (1 - share) * m0 + share * z.mean(0))
    np.testing.assert_allclose(found[1], (1 - share) * v0 + share * z.var(0))
    of_variances = sum(p * part.var(0) for p, part in zip(weights, parts, strict=True))
    assert (np.abs(z.var(0) - of_variances) > 1).all()


def test_a_variance_is_never_negative():
    sent = {"running_mean": np.zeros(1), "running_var": np.ones(1)}
    assert pooled(np.array([1.0]), np.array([0.99]), sent, 1.0)[1] == 0


def test_inputs_that_overflow_have_diverged():
    """(1.5e19 + 1e19)^2 is more than float32 holds, where every entry of the model is finite."""
    client = make_client(FBNClient)
    first = np.float32([1, 0, 0, 0, 0])
    entries = {**client.task.initial, "2.weight": 0 * first}
    entries |= {"1.bias": np.float32(1.5e19) * first, "2.running_mean": np.float32(-1e19) * first}
    with pytest.raises(FloatingPointError, match=r"training diverged: 2\.running_var of what was gathered"):
        client.fit([entries[name] for name in client.shared_names], CONFIG | {"client-lr": 1e-30})

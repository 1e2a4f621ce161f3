"""FBN, HBN and FixBN: rounds by hand, what is gathered for the server, and when statistics are fixed."""

import numpy as np
import pytest
import torch
from torch import nn

from clients import HBNClient, LocalTraining
from clients.modules.layers import HybridBatchNorm
from clients.modules.moments import pooled

from ..helpers import CONFIG, make_client
from .by_hand import arrays_of, of_batch, of_received, train, whole


def fitted(cls, model=None, batch_size=0, objective="plain", fix_from=2, **config):
    """The client, what it received, and what it sent after three epochs."""
    client = make_client(cls, None, model, 0, LocalTraining(3, batch_size), objective)
    client.fix_from = fix_from
    entries = arrays_of(client) | {
        "2.running_mean": np.linspace(-1, 1, 5),
        "2.running_var": np.linspace(0.5, 2, 5),
    }
    received = [entries[name].astype(client.task.initial[name].dtype) for name in client.shared_names]
    return client, entries, client.fit(received, CONFIG | config).arrays.by_name()


# ---- FBN: training by what was received, and what the server pools --------------------------------------


def test_a_round_of_fbn_by_hand():
    """What it evaluates has the statistics that normalised its training: moments are for the server."""
    client, entries, sent = fitted("fbn")
    expected, seen = train(entries, *whole(client), 0.1, 3, of_received(entries))
    for name, array in expected.items():
        np.testing.assert_allclose(sent[name], array, atol=2e-6)
    z = np.concatenate(seen)
    np.testing.assert_allclose(sent["2.running_mean"], z.mean(0), atol=1e-5)
    second = ((z - entries["2.running_mean"]) ** 2).mean(0)
    np.testing.assert_allclose(sent["2.running_var"], second, rtol=1e-5)
    assert sent["2.num_batches_tracked"] == 0
    statistics = client.task.model[2]
    np.testing.assert_allclose(statistics.running_mean.numpy(), entries["2.running_mean"], rtol=1e-6)
    np.testing.assert_allclose(statistics.running_var.numpy(), entries["2.running_var"], rtol=1e-6)


def test_passes_of_other_models_are_not_gathered():
    """From the second round on, MOON passes each batch through the received and the previous model as well.
    Of a weight near 0 its gradients are those of the plain objective."""
    found = []
    for objective in ("plain", "moon"):
        moon = {"mu": 1e-9, "moon-temperature": 0.5}
        client, _, sent = fitted("fbn", objective=objective, **moon)
        client.memory.commit()
        again = client.fit(list(sent.values()), CONFIG | moon | {"server-round": 2})
        found.append(again.arrays.by_name())
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
    client = make_client("fbn")
    first = np.float32([1, 0, 0, 0, 0])
    entries = {**client.task.initial, "2.weight": 0 * first}
    entries |= {"1.bias": np.float32(1.5e19) * first, "2.running_mean": np.float32(-1e19) * first}
    with pytest.raises(FloatingPointError, match=r"training diverged: 2\.running_var of what was gathered"):
        client.fit([entries[name] for name in client.shared_names], CONFIG | {"client-lr": 1e-30})


# ---- HBN: the layer, and statistics that are gathered apart from training -------------------------------


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


def test_a_layer_that_is_used_twice_keeps_its_factor_under_both_names():
    layer = HybridBatchNorm(5, 1e-5, 0.1, affine=True)
    assert HBNClient.local_entries(nn.Sequential(layer, nn.Tanh(), layer)) == {"0.factor", "2.factor"}
    assert HBNClient.local_entries(layer) == {"factor"}


def test_a_round_of_hbn_by_hand():
    """What is learnt by formula, the factor of the mix too, which stays at home."""
    client, entries, sent = fitted("hbn", hybrid_model())
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
    client, entries, sent = fitted("hbn", hybrid_model(), batch_size)
    x, _ = whole(client)
    z = x.numpy() @ entries["1.weight"].T + entries["1.bias"]
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
    client = make_client("hbn", None, hybrid_model(), 0, LocalTraining(batch_size=500))
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


# ---- FixBN: FedAvg, and then training by fixed statistics -----------------------------------------------


@pytest.mark.parametrize("server_round", [1, 2, 3])
def test_a_round_of_fixbn_by_hand(server_round):
    client, entries, sent = fitted("fixbn", **{"server-round": server_round})
    normalise = of_batch if server_round == 1 else of_received(entries)
    expected, seen = train(entries, *whole(client), 0.1, 3, normalise)
    for name, array in expected.items():
        np.testing.assert_allclose(sent[name], array, atol=2e-6)
    mean = entries["2.running_mean"]
    if server_round == 1:
        for z in seen:
            mean = 0.9 * mean + 0.1 * z.mean(0)
    np.testing.assert_allclose(sent["2.running_mean"], mean, atol=1e-6)
    assert sent["2.num_batches_tracked"] == (3 if server_round == 1 else 0)
    assert np.abs(sent["2.weight"] - entries["2.weight"]).max() > 1e-3  # weight and bias go on


@pytest.mark.parametrize(("rounds", "first"), [(10, 6), (9, 5), (1, 1), (2, 2)])
def test_by_default_the_second_half(rounds, first):
    client = make_client("fixbn")
    client.rounds = rounds
    still = [bool(client.still_in(server_round)) for server_round in range(1, rounds + 1)]
    assert still == [server_round >= first for server_round in range(1, rounds + 1)]


def test_instance_norm_goes_on_as_in_fedavg():
    model = nn.Sequential(
        nn.InstanceNorm2d(1, track_running_stats=True), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    client = make_client("fixbn", None, model)
    client.fix_from = 1
    assert client.still_in(1) == {"1"}

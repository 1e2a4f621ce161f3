"""FixBN: FedAvg, and then training by fixed statistics."""

import numpy as np
import pytest
from torch import nn

from clients import FedAvgClient, FixBNClient, LocalTraining

from ..helpers import CONFIG, make_client
from .by_hand import arrays_of, of_batch, of_received, train, whole

ONE_BATCH = LocalTraining(epochs=3, batch_size=0)


def fitted(server_round, fix_from=2):
    client = make_client(FixBNClient, None, None, 0, ONE_BATCH)
    client.fix_from = fix_from
    entries = arrays_of(client) | {
        "2.running_mean": np.linspace(-1, 1, 5),
        "2.running_var": np.linspace(0.5, 2, 5),
    }
    received = {name: entries[name].astype(np.float32) for name in client.shared_names}
    return (
        client,
        entries,
        client.fit(list(received.values()), CONFIG | {"server-round": server_round}).arrays.by_name(),
    )


@pytest.mark.parametrize("server_round", [1, 2, 3])
def test_a_round_by_hand(server_round):
    client, entries, sent = fitted(server_round)
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
    client = make_client(FixBNClient)
    client.rounds = rounds
    still = [bool(client.still_in(server_round)) for server_round in range(1, rounds + 1)]
    assert still == [server_round >= first for server_round in range(1, rounds + 1)]


def test_before_it_is_fedavg_to_the_bit():
    plain = make_client(FedAvgClient, None, None, 0, ONE_BATCH)
    other = make_client(FixBNClient, None, None, 0, ONE_BATCH)
    one, two = (client.fit(client.get_parameters({}), CONFIG).arrays for client in (plain, other))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_instance_norm_goes_on_as_in_fedavg():
    model = nn.Sequential(
        nn.InstanceNorm2d(1, track_running_stats=True), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    client = make_client(FixBNClient, None, model)
    client.fix_from = 1
    assert client.still_in(1) == {"1"}

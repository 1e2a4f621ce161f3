"""What a client sends under local differential privacy."""

import math

import numpy as np
import pytest

from clients import FedAvgClient, LocalTraining, Received
from clients.modules.local_dp import LocalMechanism

from ..helpers import CONFIG, make_client
from .test_dp_sgd import Numbers, network


def mechanism(clip, noise, seed=0):
    return LocalMechanism(clip, noise, Numbers(seed))


def test_an_update_is_clipped_as_a_whole():
    received = {"w": np.array([1.0, 1.0], np.float32), "b": np.array([0.0], np.float32)}
    trained = {"w": np.array([4.0, 1.0], np.float32), "b": np.array([4.0], np.float32)}
    sent = mechanism(2.5, 0.0).release(received, trained)  # the update (3, 0, 4) has length 5
    np.testing.assert_allclose(sent["w"], [2.5, 1.0], rtol=1e-5)
    np.testing.assert_allclose(sent["b"], [2.0], rtol=1e-5)
    assert sent["w"].dtype == np.float32
    np.testing.assert_allclose(mechanism(9, 0.0).release(received, trained)["b"], [4.0])


@pytest.mark.parametrize("last", [0.0, math.nan, math.inf])
def test_noise_has_the_deviation_z_c(last):
    """Also where nothing has moved, and around x where the update is not finite."""
    received = {"w": np.full(40_000, 7.0, np.float32)}
    trained = {"w": received["w"] + np.float32(0.0)}
    trained["w"][-1] += last
    sent = mechanism(0.5, 3.0).release(received, trained)["w"]
    assert (sent - 7).std() == pytest.approx(1.5, rel=0.01)
    assert abs((sent - 7).mean()) < 0.03


def test_a_client_sends_what_is_released():
    def client(**changes):
        made = make_client(FedAvgClient, model=network(), training=LocalTraining(2, 10))
        vars(made.task).update(changes)
        return made

    plain, private = client(), client(release=lambda server_round: mechanism(0.1, 0.0, server_round))
    start = private.get_parameters({})
    update, sent = (c.fit(c.get_parameters({}), CONFIG).arrays for c in (plain, private))
    moved = [np.ravel(a.astype(float) - s) for a, s in zip(update, start, strict=True)]
    found = [np.ravel(a.astype(float) - s) for a, s in zip(sent, start, strict=True)]
    length = np.linalg.norm(np.concatenate(moved))
    assert length > 0.1
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(moved) * 0.1 / length, atol=1e-6)


def test_what_is_not_noised_does_not_leave():
    with_records = make_client(FedAvgClient, model=network(), objective="scaffold")
    vars(with_records.task).update(release=lambda server_round: mechanism(0.1, 0.0))
    received = with_records.get_parameters({}).by_name()
    control = {n: np.zeros(p.shape, np.float32) for n, p in with_records.task.model.named_parameters()}
    with pytest.raises(ValueError, match="Scaffold sends records, which local privacy does not protect"):
        with_records.fit(Received(received, {"control": control}), CONFIG)
    statistics = make_client(FedAvgClient)  # shares BatchNorm statistics
    vars(statistics.task).update(release=lambda server_round: mechanism(0.1, 0.0))
    with pytest.raises(ValueError, match=r"local privacy does not protect 2.num_batches_tracked"):
        statistics.fit(statistics.get_parameters({}), CONFIG)

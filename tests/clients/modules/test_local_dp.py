"""What a client sends under local differential privacy."""

import math

import numpy as np
import pytest

from clients.modules.local_dp import LocalMechanism

from .test_dp_sgd import Numbers


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

"""What is found out about a Ray, without any."""

import socket

import pytest

from fedbn_flower.core.errors import RunCutOff
from fedbn_flower.runtime.ray.clusters import check_raylet


def test_a_raylet_that_no_longer_answers_cuts_the_run_off():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        check_raylet(address)
    with pytest.raises(RunCutOff, match="raylet on this machine has died"):
        check_raylet(address)

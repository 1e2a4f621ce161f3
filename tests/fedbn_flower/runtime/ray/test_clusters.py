"""What is found out about a Ray, without any."""

import socket

import pytest

from fedbn_flower.core.errors import RunCutOff
from fedbn_flower.runtime.ray.clusters import Raylet


def test_a_raylet_that_no_longer_answers_cuts_the_run_off():
    with socket.create_server(("127.0.0.1", 0)) as server:
        raylet = Raylet(server.getsockname())
        raylet.check()
        first, _ = server.accept()
        first.send(b"what a server says first")
        raylet.check()
        first.close()  # as of a connection that says nothing for long
        raylet.check()
        second, _ = server.accept()
        raylet.check()
    second.close()
    with pytest.raises(RunCutOff, match="raylet on this machine has died"):
        raylet.check()

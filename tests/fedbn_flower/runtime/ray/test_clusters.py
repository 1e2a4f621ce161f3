"""What is found out about a Ray, without any."""

import socket

import pytest

from fedbn_flower.core.errors import RunCutOff, UserError
from fedbn_flower.runtime.ray import clusters
from fedbn_flower.runtime.ray.clusters import Raylet, free_cores


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


def test_cores_of_the_run_before_are_waited_for_and_others_are_not(monkeypatch):
    free = iter([3.0, 3.0, 4.0, 4.0])
    monkeypatch.setattr(clusters.ray, "cluster_resources", lambda: {"CPU": 4.0})
    monkeypatch.setattr(clusters.ray, "available_resources", lambda: {"CPU": next(free)})
    assert free_cores(4) == 4
    with pytest.raises(UserError, match="^workers: 5 is not allowed; expected at most 4, the cores that"):
        free_cores(5)
    assert next(free, None) is None  # asked once: no waiting makes a machine larger

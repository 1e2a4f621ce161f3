"""Which process starts a node's clients, and when it ends."""

import os
import subprocess
import sys
import threading

import pytest

from fedbn_flower.warm import node


@pytest.mark.parametrize(
    ("words", "under_one"),
    [
        (["/venv/bin/flwr-clientapp", "--token", "t"], True),
        (["flwr-clientapp.exe"], True),
        (["flwr-clientapp", "--allow-runtime-dependency-installation"], False),
        (["/venv/bin/flwr-serverapp"], False),
        (["/venv/lib/ray/default_worker.py"], False),
        (["run_sim.py"], False),
        ([""], False),
    ],
)
def test_only_flowers_client_process_has_one(monkeypatch, words, under_one):
    monkeypatch.setattr(sys, "argv", words)
    assert node.node_process() == (os.getppid() if under_one else None)


def test_the_first_process_of_a_container_has_none(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["flwr-clientapp"])
    monkeypatch.setattr(os, "getppid", lambda: 0)
    assert node.node_process() is None


def test_every_node_has_a_name_of_its_own(monkeypatch):
    names = [node.name_of_node(1, 10), node.name_of_node(2, 10), node.name_of_node(1, 11)]
    monkeypatch.setattr(node.socket, "gethostname", lambda: "another-container")
    names.append(node.name_of_node(1, 10))
    assert len({*names}) == 4
    assert {len(name) for name in names} == {16}
    assert names[-1] == node.name_of_node(1, 10)


@pytest.mark.parametrize("by_descriptor", [True, False])
def test_the_end_of_a_process_is_seen(by_descriptor):
    process = subprocess.Popen(["sleep", "600"])
    descriptor = os.pidfd_open(process.pid) if by_descriptor else None
    given = process.pid, descriptor, 0.01
    waiting = threading.Thread(target=node.wait_until_ended, args=given, daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    process.kill()
    process.wait()
    waiting.join(10)
    assert not waiting.is_alive()
    if descriptor is not None:
        os.close(descriptor)


def test_a_process_that_is_no_longer_the_parent_is_not_watched():
    with subprocess.Popen(["sleep", "600"]) as process:
        with pytest.raises(node.NoWorker, match="the node has ended"):
            node.descriptor_of(process.pid)
        process.kill()
    os.close(node.descriptor_of(os.getppid()))

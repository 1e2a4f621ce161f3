"""Who answers a message: the node's worker under a SuperNode, this process everywhere else."""

import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from safetensors.numpy import load_file

from fedbn_flower import client_app
from fedbn_flower.core.bits import comparable
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.ground import wire
from fedbn_flower.core.private import identify_process
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.warm import boot, door, node, workers
from fedbn_flower.warm.node import NoWorker
from fedbn_flower.warm.workers import Answer

KEPT = RecordDict({"kept": ConfigRecord({"a": 1})})


@pytest.fixture
def under_a_node(monkeypatch):
    monkeypatch.setattr(door, "node_process", lambda: 10)


@pytest.fixture
def asked(monkeypatch):
    """What is asked of workers, which answer with the first of the list or raise it."""
    calls, answers = [], []

    def ask(*given):
        calls.append(given)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(workers, "ask", ask)
    return calls, answers


def context(**node_config):
    return Context(7, 5, node_config, RecordDict(), {})


def here(message, context):
    return "here"


def test_in_a_simulation_this_process_answers(asked):
    assert door.answered("message", context(), here) == "here"
    assert asked[0] == []


@pytest.mark.usefixtures("under_a_node")
def test_under_a_node_its_worker_answers_and_the_state_is_what_it_says(asked):
    calls, answers = asked
    answers.append(Answer("reply", None, KEPT))
    given = context()
    assert door.answered("message", given, here) == "reply"
    assert calls == [("message", given, 10)]
    assert given.state is KEPT


@pytest.mark.usefixtures("under_a_node")
def test_warm_false_turns_it_off(asked):
    assert door.answered("message", context(warm=False), here) == "here"
    assert asked[0] == []


@pytest.mark.usefixtures("under_a_node")
def test_an_error_of_the_client_is_raised_here(asked):
    error = KeyError("key")
    asked[1].append(Answer(None, error, KEPT))
    given = context()
    with pytest.raises(KeyError) as raised:
        door.answered("message", given, here)
    assert raised.value is error
    assert given.state is KEPT


@pytest.mark.usefixtures("under_a_node")
@pytest.mark.parametrize(
    "why", [NoWorker("no room"), ImportError("No module named 'fcntl'"), OSError(37, "No locks")]
)
def test_without_a_worker_this_process_answers_and_a_line_says_why(asked, why, caplog):
    asked[1].append(why)
    assert door.answered("message", context(), here) == "here"
    assert caplog.messages == [f"warm: {why}; this message is answered without a worker"]


@pytest.mark.usefixtures("under_a_node")
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"warm": 0}, "warm: 0 is not allowed; expected true or false (in the node config)"),
        *(
            (
                {"idle-seconds": value},
                f"idle-seconds: {value!r} is not allowed; expected a number of seconds from 1 to 86400 "
                "(in the node config)",
            )
            for value in (0, 86401, float("nan"), "600", True)
        ),
    ],
)
def test_a_wrong_value_is_one_line(asked, config, words):
    with pytest.raises(UserError) as raised:
        door.answered("message", context(**config), here)
    assert str(raised.value) == words
    assert asked[0] == []


@pytest.mark.parametrize("config", [{"idle-seconds": 1}, {"idle-seconds": 86400.0}, {"warm": True}])
def test_values_that_are_allowed(under_a_node, asked, config):
    asked[1].append(Answer("reply", None, RecordDict()))
    assert door.answered("message", context(**config), here) == "reply"


def test_a_client_process_of_flower_asks_its_parent(monkeypatch, asked):
    monkeypatch.setattr(sys, "argv", ["/bin/flwr-clientapp"])
    monkeypatch.setattr(node.os, "getppid", lambda: 4711)
    asked[1].append(Answer("reply", None, RecordDict()))
    door.answered("message", given := context(), here)
    assert asked[0] == [("message", given, 4711)]


RUN = "20260101T000000000000-0123abcd"


def exchange(configured, *rounds, **node_config):
    """Rounds of FedBN with MOON and an evaluation of the first: what came back, and the client's state.

    Without a state-dir its memories are in the Context.
    """
    config = configured(client="fedbn", objective="moon", batch_size=64)
    identify_process(7, 5, 3)
    _, initial = inputs_of(config).model()
    shared = {name: array for name, array in initial.items() if not name.startswith("2.")}  # its BatchNorm
    arrays = ArrayRecord({name: Array(np.asarray(array)) for name, array in shared.items()})
    node_config |= {"partition-id": 1, "num-partitions": 2}
    context = Context(7, 5, node_config, RecordDict(), config.to_user_config())
    found = []
    first, *later = rounds
    for server_round, kind in ((first, "train"), (first, "evaluate"), *((n, "train") for n in later)):
        asked = {wire.SERVER_ROUND: server_round, wire.EVAL_SPLITS: "test", wire.CLIENT_LR: 0.1}
        asked |= {wire.RUN: RUN, wire.CHECKPOINT_ROUND: 0}
        content = RecordDict({wire.ARRAYS: arrays, wire.CONFIG: ConfigRecord(asked)})
        reply = client_app.app(Message(content, 5, kind), context)
        assert not reply.has_error(), reply.error
        found.append(reply.content)
    return found, context.state


@pytest.mark.slow
def test_the_same_bits_with_and_without(node, configured, monkeypatch):
    monkeypatch.setattr(workers, "BOOT", Path(boot.__file__))
    alone = exchange(configured, 1, 2)
    monkeypatch.setattr(door, "node_process", lambda: node.process)
    warm = exchange(configured, 1, 2)
    assert len(node.workers()) == 1
    assert warm == alone
    assert warm[1].array_records


def test_a_worker_that_dies_after_it_has_written_a_memory_may_be_replaced(configured, tmp_path):
    """Who trains a round once more starts from the memory of the round before: same answer, same memory."""
    once, _ = exchange(configured, 1, 2, **{"state-dir": str(tmp_path / "once")})
    twice, _ = exchange(configured, 1, 2, 2, **{"state-dir": str(tmp_path / "twice")})
    assert twice == [*once, once[-1]]
    files = [
        {path.name: load_file(path) for path in (tmp_path / name).rglob("*.safetensors")}
        for name in ("once", "twice")
    ]
    assert len(files[0]) == 2
    assert comparable(files[0]) == comparable(files[1])

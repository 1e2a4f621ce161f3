"""What passes between a door and its worker arrives as it was."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict

from fedbn_flower.core.private import identify_process, process_identity, set_message_id
from fedbn_flower.warm import packing
from fedbn_flower.warm.channel import InvalidPacket

IDENTITY = 7, 5, 3


@pytest.fixture(autouse=True)
def identity():
    identify_process(*IDENTITY)
    yield
    identify_process(1)


def records():
    arrays = {"b": np.arange(6.0).reshape(2, 3), "a": np.zeros((0, 2), np.int8), "s": np.float32(1.5)}
    return RecordDict(
        {
            "z": ArrayRecord({name: packing.Array(np.asarray(array)) for name, array in arrays.items()}),
            "config": ConfigRecord({"text": "t", "number": 2**40, "list": [1.5], "bytes": b"\0"}),
            "metrics": MetricRecord({"loss": 0.5, "counts": [1, 2]}),
            "a": ArrayRecord(),
        }
    )  # fmt: skip


@pytest.fixture
def context():
    node_config = {"partition-id": 1, "state-dir": "/s", "warm": True}
    return Context(7, 5, node_config, RecordDict({"kept": records()["z"]}), {"rounds": 2, "lr": 0.1})


@pytest.fixture
def message():
    message = Message(records(), 5, "train")
    set_message_id(message, "abc")
    return message


def assert_same(found, expected):
    assert list(found) == list(expected)
    assert found == expected
    for name, record in expected.array_records.items():
        assert list(found[name]) == list(record)
        assert [a.data for a in found[name].values()] == [a.data for a in record.values()]


def test_a_request(message, context):
    parts = packing.packed_request(message, context)
    identify_process(1)
    found, its_context = packing.request_of(parts)
    assert process_identity() == IDENTITY
    assert found.metadata == message.metadata
    assert_same(found.content, message.content)
    assert_same(its_context.state, context.state)
    for name in ("run_id", "node_id", "node_config", "run_config", "series_id"):
        assert getattr(its_context, name) == getattr(context, name)


def test_who_asks_keeps_what_it_asked(message, context):
    packing.packed_request(message, context)
    assert_same(message.content, records())
    assert_same(context.state, RecordDict({"kept": records()["z"]}))


def test_arrays_are_no_part_of_flowers_bytes(context):
    """These have 2 GiB at most."""
    array = np.zeros(10**6)
    content = RecordDict({"arrays": ArrayRecord({"w": packing.Array(array)})})
    sizes = sorted(map(len, packing.packed_request(Message(content, 5, "train"), context)))
    assert sizes[-1] >= array.nbytes
    assert sizes[-2] < 1000


def test_a_reply(message):
    reply = Message(records(), reply_to=message)
    state = RecordDict({"fedbn.bn": records()["z"]})
    found, its_state = packing.reply_of(packing.packed_reply(reply, state))
    assert found.metadata == reply.metadata
    assert found.metadata.reply_to_message_id == "abc"
    assert_same(found.content, reply.content)
    assert_same(its_state, state)


def test_a_reply_that_is_an_error(message):
    reply = Message(Error(3, "why"), reply_to=message)
    found, _ = packing.reply_of(packing.packed_reply(reply, RecordDict()))
    assert (found.error.code, found.error.reason) == (3, "why")
    assert not found.has_content()


def test_a_state():
    assert_same(packing.state_of(packing.packed_state(records())), records())


def test_parts_that_are_missing(message, context):
    parts = packing.packed_request(message, context)
    for count in range(len(parts)):
        with pytest.raises(InvalidPacket, match="not a request"):
            packing.request_of(parts[:count])
    with pytest.raises(InvalidPacket, match="not a reply"):
        packing.reply_of([])
    with pytest.raises(InvalidPacket, match="not a state"):
        packing.state_of([])

"""Answers before their turn: few are in memory, whichever is late, and no bit of the sum changes."""

import logging
import tempfile
import weakref

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from strategies import FedAvg
from strategies.messages.replies import EarlyAnswers

from ..helpers import MODEL, CannedGrid, moved, ndarrays, record, train_reply

SITES = 16
FLOATS = 25_000
LARGE = 4 * FLOATS + 128
"""Bytes of an encoded array of so many numbers, with the header of its npy file."""


def large(number):
    return {"weight": np.full(FLOATS, number, np.float32)}


def one_round(order, in_memory, monkeypatch):
    """Train once; return the model, and the most arrays of answers that were alive when another came."""
    monkeypatch.setattr(EarlyAnswers.__init__, "__defaults__", (in_memory,))
    alive, most = [], 0

    def arriving(replies):
        nonlocal most
        for place in order:
            message = train_reply(messages[place], large(1 + 0.1 * place), 1 + place)
            alive.append(weakref.ref(message.content["arrays"]["weight"]))
            most = max(most, sum(one() is not None for one in alive))
            yield message
            del message

    strategy, grid = FedAvg(), CannedGrid(SITES, lambda message, _: train_reply(message, large(0)))
    messages = list(strategy.configure_train(1, record(large(1)), ConfigRecord(), grid))
    list(grid.send_and_receive(messages))  # they have their ids
    updated, _ = strategy.aggregate_train(1, arriving(None))
    return updated["weight"].data, most, strategy.phase_report.failures


LATE = [*range(1, SITES), 0]


def test_with_a_late_first_site_of_sixteen_few_answers_are_in_memory(monkeypatch):
    """Three fit; one more is being written, and a fifth arrives. The bits are those of answers in order."""
    model, most, failures = one_round(LATE, 3 * LARGE, monkeypatch)
    everything, all_of_them, _ = one_round(LATE, 2**40, monkeypatch)
    in_order, few, _ = one_round(range(SITES), 2**40, monkeypatch)
    assert not failures
    assert (most <= 5, all_of_them >= SITES - 1, few <= 2) == (True, True, True), (most, all_of_them, few)
    assert model == everything == in_order


def test_nor_if_the_first_never_answers(monkeypatch):
    model, most, failures = one_round(LATE[:-1], 0, monkeypatch)
    assert set(failures) == {0}
    assert most <= 2
    assert model == one_round(LATE[:-1], 2**40, monkeypatch)[0]


def reply(content):
    return Message(content, reply_to=Message(RecordDict(), 1, "train"))


def test_what_is_taken_is_what_was_put_and_what_others_hold_is_as_it_was():
    """An array in two places, as Flower makes of equal ones; empty ones; a view; other records; an error."""
    shared, view = Array(np.arange(6.0)), Array("uint8", (3,), "numpy.ndarray", b"abc")
    arrays = ArrayRecord({"a": shared, "b": shared, "none": Array(np.empty(0)), "bare": view})
    content = RecordDict(
        {"arrays": arrays, "more": ArrayRecord({"a": shared}), "said": ConfigRecord({"x": 1})}
    )
    answers = EarlyAnswers(0)
    answers.put(5, reply(content))
    answers.put(3, Message(Error(1, "out of luck"), reply_to=Message(RecordDict(), 1, "train")))
    answers.put(4, reply(RecordDict({"arrays": record(MODEL)})))
    assert list(answers) == [3, 4, 5]
    assert answers.bytes_held == 0
    found = answers.take(5).content
    assert list(found) == ["arrays", "more", "said"]
    assert [bytes(a.data) for r in found.array_records.values() for a in r.values()] == [
        bytes(a.data) for r in content.array_records.values() for a in r.values()
    ]
    assert [(a.shape, a.dtype, a.stype) for a in found["arrays"].values()] == [
        (a.shape, a.dtype, a.stype) for a in arrays.values()
    ]
    assert found["said"] == content["said"]
    np.testing.assert_array_equal(shared.numpy(), np.arange(6.0))
    assert answers.take(3).error.reason == "out of luck"
    np.testing.assert_equal(ndarrays(answers.take(4).content["arrays"]), dict(MODEL))
    assert 4 not in answers


def test_room_is_made_by_what_is_taken():
    answers = EarlyAnswers(LARGE)
    for position in (1, 2):
        answers.put(position, reply(RecordDict({"arrays": record(large(position))})))
    assert answers.bytes_held == LARGE
    answers.take(2)
    assert answers.bytes_held == LARGE
    answers.take(1)
    assert answers.bytes_held == 0


@pytest.mark.parametrize("folder", ["full", "missing"])
def test_where_no_file_can_be_written_they_stay_in_memory(folder, monkeypatch, caplog):
    def file(buffering):
        return open("/dev/full" if folder == "full" else "/nowhere/file", "w+b", buffering=buffering)

    monkeypatch.setattr(tempfile, "TemporaryFile", file)
    answers, sent = EarlyAnswers(0), [RecordDict({"arrays": record(moved(i))}) for i in range(3)]
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        for position, content in enumerate(sent):
            answers.put(position, reply(content))
    assert len(caplog.records) == 1
    assert "answers before their turn stay in memory: no temporary file (" in caplog.text
    for position, content in enumerate(sent):
        np.testing.assert_equal(
            ndarrays(answers.take(position).content["arrays"]), ndarrays(content["arrays"])
        )

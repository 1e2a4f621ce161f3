"""What a site sends is decoded, typed and made printable by one gate; what fails is one line of that site."""

import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from strategies import ReplyRefused
from strategies.messages.gate import (
    MAX_REASON,
    answers,
    content_of,
    numbers_of,
    printable,
    record_of,
    refusing,
    text_of,
    without_folders,
)
from strategies.messages.nodes import NodeDirectory

from ..helpers import CannedGrid

FOLDERS = {
    "data-path: '/srv/ward 7/scans.csv' is not allowed": "data-path: 'scans.csv' is not allowed",
    "cannot open /home/meier/data/train/ (No space)": "cannot open train (No space)",
    r"cannot read C:\Users\meier\scan.dcm": "cannot read scan.dcm",
    "no ~/secret/key.pem, nor ~meier": "no key.pem, nor ~meier",
    "see https://flower.ai/docs, n/a, data/train": "see https://flower.ai/docs, n/a, data/train",
    "FileNotFoundError: [Errno 2] No such file: '/x'": "FileNotFoundError: [Errno 2] No such file: 'x'",
}


def test_folders_of_a_site_stay_there():
    assert {text: without_folders(text) for text in FOLDERS} == FOLDERS


def to_ask(nodes=1):
    grid = CannedGrid(nodes, None)
    messages = [Message(RecordDict(), node, "query.moments") for node in range(nodes)]
    grid.work = lambda messages, timeout: iter(())
    grid.send_and_receive(messages)
    return messages


def test_an_error_is_one_short_line_whatever_its_text():
    (asked,) = to_ask()
    text = "\x1b[31m" + "/srv/a/" * 100_000 + "\nb\x00"
    began = time.process_time()
    ((node, refused),) = answers([asked], [Message(Error(1, text), reply_to=asked)], content_of)
    assert time.process_time() - began < 5
    assert (node, str(refused).isprintable(), len(str(refused)) <= MAX_REASON) == (0, True, True)


@pytest.mark.parametrize("reason", ["", None])
def test_an_error_without_a_text_has_its_code(reason):
    (asked,) = to_ask()
    with pytest.raises(ReplyRefused, match="^error code 7$"):
        content_of(Message(Error(7, reason), reply_to=asked))


def test_the_first_answer_to_a_message_counts_and_each_fails_alone():
    asked = to_ask(3)

    def reply(message, value):
        return Message(RecordDict({"counts": ConfigRecord({"counts": value})}), reply_to=message)

    replies = [reply(asked[2], "c"), reply(asked[0], "a"), reply(asked[0], "b"), reply(asked[1], 5)]
    found = dict(answers(asked, replies, lambda content: text_of(content, "counts", "counts", 9)))
    assert (found[0], found[2], str(found[1])) == ("a", "c", "counts: 'counts' is no text")


def test_whatever_a_reader_raises_is_of_that_site():
    (asked,) = to_ask()

    def fails(content):
        raise RecursionError("\x1b[2Jtoo deep")

    ((_, refused),) = answers([asked], [Message(RecordDict(), reply_to=asked)], fails)
    assert str(refused) == "cannot be read (RecursionError: too deep)"
    with pytest.raises(ReplyRefused, match="KeyError: 'a'"), refusing():
        {}["a"]


NUMBERS = {
    "no record": (RecordDict(), "the ArrayRecord 'm' is missing"),
    "another kind of record": (RecordDict({"m": MetricRecord({"a": 1})}), "the ArrayRecord 'm' is missing"),
    "too many arrays": ({str(i): Array(np.zeros(1)) for i in range(4)}, "4 arrays, at most 3"),
    "too many numbers": ({"a": Array(np.zeros(9))}, "a: expected at most 2 numbers"),
    "too many bytes": ({"a": Array("float64", (2,), "numpy.ndarray", bytes(9999))}, "a: 9999 bytes"),
    "no array": ({"a": Array("float64", (2,), "numpy.ndarray", b"PK")}, "a: cannot be decoded"),
    "text": ({"a": Array(np.array(["x"]))}, "a: expected at most 2 numbers"),
}


def test_arrays_that_are_none_are_refused():
    for arrays, reason in NUMBERS.values():
        content = arrays if isinstance(arrays, RecordDict) else RecordDict({"m": ArrayRecord(arrays)})
        with pytest.raises(ReplyRefused, match=reason):
            numbers_of(content, "m", entries=3, size=2)


def test_arrays_and_texts_are_what_was_sent():
    content = RecordDict(
        {"m": ArrayRecord({"a": Array(np.array([1.5, 2]))}), "c": ConfigRecord({"t": "abc"})}
    )
    assert numbers_of(content, "m", 1, 2)["a"].tolist() == [1.5, 2]
    assert text_of(content, "c", "t", 3) == "abc"
    assert record_of(content, "c", ConfigRecord) == {"t": "abc"}
    with pytest.raises(ReplyRefused, match="3 characters, at most 2"):
        text_of(content, "c", "t", 2)
    assert printable("x" * 9, 4) == "xxxx"


@pytest.mark.parametrize(
    "identity",
    [
        {"partition-id": -1},
        {"partition-id": 2**53},
        {"partition-id": "\x1b[2J0"},
        {"partition-id": [0]},
        None,
    ],
    ids=str,
)
def test_a_malformed_identity_is_one_line_and_none_of_the_others(identity, caplog):
    class Malformed(CannedGrid):
        def work(self, messages, timeout):
            for message in messages:
                node = message.metadata.dst_node_id
                held = identity if node == 1 else {"partition-id": 5 - node}
                record = MetricRecord() if held is None else ConfigRecord(held)
                yield Message(RecordDict({"partition": record}), reply_to=message)

    directory = NodeDirectory(ask=True, node_timeout=1, query_timeout=1)
    assert directory.connected(Malformed(3, None), 3, "") == [2, 0, 1]
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith("node 1 does not say which partition it holds: ")
    assert line.isprintable()

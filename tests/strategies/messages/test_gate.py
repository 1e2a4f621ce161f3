"""What a site sends is decoded, typed and made printable by one gate; what fails is one line of that site."""

import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import FedAvg, ReplyRefused
from strategies.messages import gate
from strategies.messages.nodes import NodeDirectory

from ..helpers import MODEL, CannedGrid, moved, record, train, train_reply

FOLDERS = {
    "data-path: '/srv/ward 7/scans.csv' is not allowed": "data-path: 'scans.csv' is not allowed",
    "cannot open /home/meier/data/train/ (No space)": "cannot open train (No space)",
    r"cannot read C:\Users\meier\scan.dcm": "cannot read scan.dcm",
    "no ~/secret/key.pem, nor ~meier": "no key.pem, nor ~meier",
    "see https://flower.ai/docs, n/a, data/train": "see https://flower.ai/docs, n/a, data/train",
    "FileNotFoundError: [Errno 2] No such file: '/x'": "FileNotFoundError: [Errno 2] No such file: 'x'",
}


def test_folders_of_a_site_stay_there():
    assert {text: gate.without_folders(text) for text in FOLDERS} == FOLDERS


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
    ((node, refused),) = gate.answers([asked], [Message(Error(1, text), reply_to=asked)], gate.content_of)
    assert time.process_time() - began < 5
    assert (node, str(refused).isprintable(), len(str(refused)) <= gate.MAX_REASON) == (0, True, True)


@pytest.mark.parametrize("reason", ["", None])
def test_an_error_without_a_text_has_its_code(reason):
    (asked,) = to_ask()
    with pytest.raises(ReplyRefused, match="^error code 7$"):
        gate.content_of(Message(Error(7, reason), reply_to=asked))


def test_the_first_answer_to_a_message_counts_and_each_fails_alone():
    asked = to_ask(3)

    def reply(message, value):
        return Message(RecordDict({"counts": ConfigRecord({"counts": value})}), reply_to=message)

    replies = [reply(asked[2], "c"), reply(asked[0], "a"), reply(asked[0], "b"), reply(asked[1], 5)]
    found = dict(gate.answers(asked, replies, lambda content: gate.text_of(content, "counts", "counts", 9)))
    assert (found[0], found[2], str(found[1])) == ("a", "c", "counts: 'counts' is no text")


def test_whatever_a_reader_raises_is_of_that_site():
    (asked,) = to_ask()

    def fails(content):
        raise RecursionError("\x1b[2Jtoo deep")

    ((_, refused),) = gate.answers([asked], [Message(RecordDict(), reply_to=asked)], fails)
    assert str(refused) == "cannot be read (RecursionError: too deep)"
    with pytest.raises(ReplyRefused, match="KeyError: 'a'"), gate.refusing():
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
            gate.numbers_of(content, "m", entries=3, size=2)


def test_arrays_and_texts_are_what_was_sent():
    content = RecordDict(
        {"m": ArrayRecord({"a": Array(np.array([1.5, 2]))}), "c": ConfigRecord({"t": "abc"})}
    )
    assert gate.numbers_of(content, "m", 1, 2)["a"].tolist() == [1.5, 2]
    assert gate.text_of(content, "c", "t", 3) == "abc"
    assert gate.record_of(content, "c", ConfigRecord) == {"t": "abc"}
    with pytest.raises(ReplyRefused, match="3 characters, at most 2"):
        gate.text_of(content, "c", "t", 2)
    assert gate.printable("x" * 9, 4) == "xxxx"


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


# ---- what a client gives as a reason is fit for a terminal --------------------------------------------


SEQUENCES = {
    "\x1b[31m": "a colour",
    "\x1b[2J\x1b[1;1H": "an empty screen",
    "\x1b]0;owned\x07": "the window's title",
    "\x1b]8;;http://x\x1b\\": "a link",
    "\x1bP0;0|q\x1b\\": "a device control string",
    "\x1b(0": "another alphabet",
    "\x1bc": "a reset",
    "\x9b31m": "a colour in one character less",
    "\x9d0;owned\x9c": "a title so",
}


@pytest.mark.parametrize("sequence", SEQUENCES, ids=SEQUENCES.values())
def test_escape_sequences_leave_nothing(sequence):
    assert gate.printable(f"out {sequence}of {sequence}luck{sequence}") == "out of luck"


@settings(max_examples=200)
@given(st.text(st.one_of(st.characters(), st.sampled_from("\x1b[]();0mP\\\x07\x9b\r\n\t")), max_size=600))
def test_every_reason_is_one_line_of_characters_that_are_seen(text):
    shown = gate.printable(text)
    assert shown.isprintable()
    assert len(shown) <= gate.MAX_REASON
    assert "  " not in shown
    if text.isprintable() and len(text) <= gate.MAX_REASON:
        assert shown == " ".join(text.split())
    assert gate.printable(shown) == shown


def test_the_log_and_the_report_have_the_same_reason(caplog):
    """Of an error that a client sends; the honest one's answer counts."""

    def answer(message, partition):
        if partition:
            return train_reply(message, moved(1))
        return Message(
            Error(1, "\x1b[31mout\x1b[0m of\r\n\x1b]0;owned\x07luck\x1b[2K\u202e"), reply_to=message
        )

    strategy, grid = FedAvg(), CannedGrid(2, answer)
    updated, _ = train(strategy, MODEL, grid)
    np.testing.assert_array_equal(updated["layer.weight"].numpy(), 2)
    assert strategy.phase_report.failures == {0: "out of luck"}
    assert "node 0 dropped: out of luck" in caplog.text
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("phase", ["train", "evaluate"])
def test_one_liar_sampled_first_and_alone_does_not_end_the_run(phase):
    """One of three is asked in each round, until an honest one was; the liar has no metrics."""

    def answer(message, partition):
        liar = partition == first
        return (
            Message(RecordDict(), reply_to=message) if liar else train_reply(message, moved(1), 1, loss=2.0)
        )

    strategy = FedAvg(
        fraction_train=0.34, fraction_evaluate=0.34, min_train_nodes=1, min_evaluate_nodes=1, seed=0
    )
    grid, arrays, first = CannedGrid(3, answer), record(MODEL), None
    asked = {"train": strategy.configure_train, "evaluate": strategy.configure_evaluate}[phase]
    taken = {"train": strategy.aggregate_train, "evaluate": strategy.aggregate_evaluate}[phase]
    for number in range(1, 20):
        (message,) = asked(number, arrays, ConfigRecord(), grid)
        first = message.metadata.dst_node_id if first is None else first
        taken(number, grid.send_and_receive([message]))
        if strategy.phase_report.metrics:
            assert number > 1
            return
        assert strategy.phase_report.failures.keys() == {first}
    pytest.fail("no honest client was asked")


def test_a_mistake_in_an_app_ends_the_run_of_a_single_client():
    strategy = FedAvg(min_train_nodes=1, min_available_nodes=1)
    grid = CannedGrid(1, lambda message, partition: Message(RecordDict(), reply_to=message))
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    with pytest.raises(InconsistentMessageReplies, match="all 1 answers"):
        strategy.aggregate_train(1, grid.send_and_receive(messages))


RAY = """<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'ray::Actor.run() (pid={pid}, ip=1.2.3.4)
  File "/app/flwr/clientapp/client_app.py", line 161, in __call__
FloatingPointError: training diverged

The above exception was the direct cause of the following exception:

ray::Actor.run() (pid={pid}, ip=1.2.3.4)
flwr.clientapp.client_app.ClientAppException:
Exception ClientAppException occurred. Message: training diverged
'>"""


@pytest.mark.parametrize(
    ("reason", "output"),
    [
        (RAY.format(pid=5), "training diverged"),
        ('Traceback:\n  File "/a.py", line 3, in f\n    x\nKeyError: 1\n', "KeyError: 1"),
        ("RuntimeError: out of luck", "RuntimeError: out of luck"),
        ("two\nlines", "two\nlines"),
        ("", ""),
        ('x", line 1\n' + " \n" * 3000, 'x", line 1\n' + " \n" * 3000),
    ],
)
def test_of_a_traceback_its_end_is_reported(reason, output):
    assert gate.cause(reason) == output

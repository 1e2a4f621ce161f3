"""What a client gives as a reason is fit for a terminal."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import FedAvg
from strategies.messages.gate import MAX_REASON, cause, printable

from ..helpers import MODEL, CannedGrid, moved, record, train, train_reply

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
    assert printable(f"out {sequence}of {sequence}luck{sequence}") == "out of luck"


@settings(max_examples=200)
@given(st.text(st.one_of(st.characters(), st.sampled_from("\x1b[]();0mP\\\x07\x9b\r\n\t")), max_size=600))
def test_every_reason_is_one_line_of_characters_that_are_seen(text):
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= MAX_REASON
    assert "  " not in shown
    if text.isprintable() and len(text) <= MAX_REASON:
        assert shown == " ".join(text.split())
    assert printable(shown) == shown


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
    assert cause(reason) == output

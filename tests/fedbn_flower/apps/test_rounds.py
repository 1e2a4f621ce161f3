"""Rounds as messages show them, and the line that shows them."""

import io

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedbn_flower.apps.rounds import ERASE, Line, Rounds, described, round_named
from fedbn_flower.runtime.grid import identify_process

identify_process()


def message(kind="train", group_id="", **config):
    return Message(RecordDict({"config": ConfigRecord(config)}), 2, kind, group_id=group_id)


@pytest.mark.parametrize(
    ("sent", "number"),
    [
        (message(**{"server-round": 3}), 3),
        (message(group_id="4"), 4),
        (message(), 0),
        (message(group_id="a"), 0),
    ],
)
def test_the_round_that_a_message_names(sent, number):
    assert round_named(sent) == number


def test_a_phase_of_training_begins_a_round_where_messages_name_none():
    rounds = Rounds()
    for kind, number in (("query", 0), ("train.first", 1), ("evaluate", 1), ("train", 2)):
        with rounds.phase([message(kind)]):
            assert rounds.number == number
    assert rounds.expected_last() == 4  # as many again, if the app does not say
    rounds.last = 3
    assert rounds.expected_last() == 3


def test_rounds_of_several_strategies_add_up():
    rounds = Rounds()
    for numbers in ((1, 2, 3), (1, 1, 2)):  # the second one asks twice in its first round
        rounds.begin(len(set(numbers)))
        assert rounds.number == 0
        for number in numbers:
            with rounds.phase([message(**{"server-round": number})]):
                assert rounds.number == number
    assert (rounds.total, rounds.expected_last()) == (5, 5)
    for kind in ("evaluate", "train"):  # models of before are evaluated; a loop of the app's own begins anew
        with rounds.phase([message(kind, **{"server-round": 1})]):
            assert (rounds.number, rounds.total) == {"evaluate": (2, 5), "train": (1, 6)}[kind]


def test_the_line_says_what_has_come_and_is_erased():
    stream = io.StringIO()
    stream.isatty = lambda: True
    line = Line(stream, shown=True)
    rounds = Rounds([line], last=2)
    with rounds.phase([message(), message()]) as told:
        told(Message(RecordDict(), reply_to=message()))
    line.clear()
    assert [part.strip() for part in stream.getvalue().split(ERASE)] == [
        "", "round 1/2  train 0/2  0 s", "round 1/2  train 1/2  0 s", "",
    ]  # fmt: skip
    rounds.failures = 1
    assert described(rounds, 61.4) == "round 1/2  train 1/2  1 failed  61 s"


def test_no_line_is_written_to_a_file():
    stream = io.StringIO()
    with Rounds([Line(stream, shown=True)]).phase([message()]):
        pass
    assert stream.getvalue() == ""

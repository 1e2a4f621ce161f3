"""What a run's end says of the answers that were not used."""

import numpy as np
from flwr.app import Array, ArrayRecord

from fedbn_flower.records.events import RoundResult
from fedbn_flower.server.refusals import MAX_REASONS, Refusals
from fedbn_flower.strategies import PhaseReport


def a_round(train, evaluate=None, new=None):
    reports = [None if failures is None else PhaseReport({}, failures) for failures in (train, evaluate, new)]
    arrays = ArrayRecord({"w": Array(np.zeros(1))})
    train, evaluate, new = reports
    return RoundResult(
        1, 0.0, arrays, train, evaluate or train, {}, None, ("loss",), others={"new": new} if new else {}
    )


def noted(*rounds):
    refusals = Refusals()
    for result in rounds:
        refusals.note(result)
    return refusals


def test_each_reason_with_its_clients_and_how_often():
    refusals = noted(
        a_round({0: "no file", 1: "no file"}, {2: "late"}),
        a_round({0: "no file"}, {}, {7: "once"}),
        a_round({0: "no file", 4: "no file", 5: "no file", 3: "late"}),
    )
    assert list(refusals.lines()) == [
        "6 replies were refused, of clients 0, 1, 4 and 1 more: no file",
        "2 replies were refused, of clients 2, 3: late",
    ]
    assert refusals.main_reason() == "; 6 of 9 failures: no file"


def test_without_failures_nothing_is_said():
    refusals = noted(a_round({}))
    assert list(refusals.lines()) == []
    assert refusals.main_reason() == ""


def test_a_liar_cannot_fill_the_memory():
    refusals = noted(*(a_round({1: f"reason {i}"}) for i in range(MAX_REASONS + 5)))
    assert len(refusals.clients) == MAX_REASONS


def test_one_that_evaluates_what_it_trained_counts_once():
    assert noted(a_round({3: "late"})).main_reason() == "; 1 of 1 failures: late"

"""FedProto and FedSat at the server: two clients by hand, and what is refused."""

import numpy as np
import pytest
from flwr.app import ArrayRecord

from strategies import FedProto, FedSat

from ..helpers import CannedGrid, ndarrays, record, train, train_reply


def a_round(strategy, number, x, answers):
    """The scalar model after a round in which client i answers x + its step, with a record; what was sent."""
    sent = []

    def answer(message, partition):
        sent.append(message.content)
        step, weight, extra = answers[partition]
        reply = train_reply(message, {} if step is None else {"w": x + np.float32(step)}, weight)
        reply.content.update(extra)
        return reply

    grid = CannedGrid(len(answers), answer)
    arrays = record({} if answers[0][0] is None else {"w": x})
    updated, _ = train(strategy, arrays, grid, number)
    return ndarrays(updated).get("w"), sent[0]


def prototypes(sums, shares):
    arrays = {"sums": np.array(sums, np.float32), "shares": np.array(shares, np.float32)}
    return {"prototypes": record(arrays)}


ANY = {"min_train_nodes": 1, "min_available_nodes": 1}
ONE_CLASS = prototypes([[1, 2], [0, 0], [0, 0]], [1, 0, 0])
TWO_CLASSES = prototypes([[0.75, 0.75], [1, 0], [0, 0]], [0.75, 0.25, 0])


def test_prototypes_by_hand():
    """Two examples of class 0 with the mean (1, 2); and of eight, six of class 0 with the mean (1, 1), two of
    class 1 with (4, 0): class 0 has (2 (1, 2) + 6 (1, 1)) / 8 = (1, 1.25), class 1 (4, 0), class 2 none. In
    the next round one client has class 0 alone, at (1, 2): class 1 keeps what it had."""
    rule, x = FedProto(**ANY), np.zeros(1, np.float32)
    x, sent = a_round(rule, 1, x, [(1, 2, ONE_CLASS), (2, 8, TWO_CLASSES)])
    assert x == pytest.approx([1.8])  # (2 * 1 + 8 * 2) / 10
    assert "prototypes" not in sent
    _, sent = a_round(rule, 2, x, [(0, 2, ONE_CLASS)])
    got = ndarrays(sent["prototypes"])
    np.testing.assert_allclose(got["prototypes"], [[1, 1.25], [4, 0], [0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(got["known"], [1, 1, 0])
    _, sent = a_round(rule, 3, x, [(0, 2, ONE_CLASS)])
    np.testing.assert_allclose(
        ndarrays(sent["prototypes"])["prototypes"], [[1, 2], [4, 0], [0, 0]], rtol=1e-6
    )


def test_prototypes_travel_without_a_model():
    rule = FedProto(**ANY, trainable=[])
    for number in (1, 2):
        _, sent = a_round(rule, number, None, [(None, 2, ONE_CLASS), (None, 8, TWO_CLASSES)])
    assert not len(sent["arrays"])
    got = ndarrays(sent["prototypes"])["prototypes"]
    np.testing.assert_allclose(got, [[1, 1.25], [4, 0], [0, 0]], rtol=1e-6)


BAD_PROTOTYPES = [
    ({}, "'prototypes' is missing"),
    (prototypes([[1, 2]], [0.5, 0.5]), "'sums' is (1, 2), 'shares' is (2,)"),
    (prototypes([[1, 2], [0, 0], [0, 0]], [-1, 0, 0]), "shares: from -1 to 0, not a number in [0, 1]"),
    (prototypes([[1, 2], [0, 0], [0, 0]], [1, 1, 0]), "'shares' must sum to at most 1"),
    (prototypes([[1], [0], [0]], [1, 0, 0]), "sums: shape (3,), expected (6,)"),
    (prototypes([[np.nan, 2], [0, 0], [0, 0]], [1, 0, 0]), "sums: not finite"),
    ({"prototypes": ArrayRecord()}, "'sums' is (0,), 'shares' is (0,)"),
]


def test_prototypes_that_cannot_be_used_drop_the_answer():
    """Of another width in later rounds, too."""
    for extra, words in BAD_PROTOTYPES:
        rule, x = FedProto(**ANY), np.zeros(1, np.float32)
        x, _ = a_round(rule, 1, x, [(1, 1, ONE_CLASS), (3, 1, extra)])
        assert x == pytest.approx([1.0])
        assert words in rule.phase_report.failures[1]
    a_round(rule, 2, x, [(1, 4, TWO_CLASSES), (1, 1, prototypes([[1], [0], [0]], [1, 0, 0]))])
    assert "shape (3, 1), expected (3, 2)" in rule.phase_report.failures[1]


def struggle(*scores):
    return {"struggle": record({"scores": np.array(scores, np.float32)})}


def test_struggle_by_hand():
    """Mean scores 0.625, 0.25, 0.5: classes 0 and 2 count. Class 0: weights 0.25 and 0.5, of 0.75: the step
    is (1 + 2 * 3)/3 = 7/3. Class 2: weights 1 and 0: 1. The numbers of examples play no part."""
    rule, x = FedSat(**ANY, top_p=2, eta=0.5), np.zeros(1, np.float32)
    x, _ = a_round(rule, 1, x, [(1, 1, struggle(0.75, 0.25, 0)), (3, 1000, struggle(0.5, 0.25, 1))])
    assert x == pytest.approx([0.5 * (7 / 3 + 1) / 2])


def test_where_all_struggle_wholly_all_count_alike():
    """All scores are 1: the plain mean, 2; of two classes there are no five."""
    rule, x = FedSat(**ANY, top_p=5), np.zeros(1, np.float32)
    x, _ = a_round(rule, 1, x, [(1, 1, struggle(1, 1)), (3, 9, struggle(1, 1))])
    assert x == pytest.approx([2.0])


def test_too_few_answers_leave_prototypes_as_they_were():
    rule, x = FedProto(**ANY, min_replies=2), np.zeros(1, np.float32)
    a_round(rule, 1, x, [(1, 1, ONE_CLASS), (1, 1, ONE_CLASS)])
    before = {name: vector.copy() for name, vector in rule.rule_state.vectors.items()}
    grid = CannedGrid(2, lambda m, i: train_reply(m, {"w": x}) if i else None)
    assert train(rule, {"w": x}, grid, 2) == (None, None)
    for name, vector in rule.rule_state.vectors.items():
        np.testing.assert_array_equal(vector, before[name])


BAD_SCORES = [
    ({}, "'struggle' is missing"),
    (struggle(0.5, 1.5), "scores: from 0.5 to 1.5, not a number in [0, 1]"),
    (struggle(-0.1, 0.5), "scores: from -0.1 to 0.5, not a number in [0, 1]"),
    (struggle(0.5), "shape (1,), expected (2,)"),
    (struggle(np.nan, 0.5), "not finite"),
    (struggle(), "must be numbers in [0, 1], one per class"),
]


def test_scores_that_cannot_be_used_drop_the_answer():
    for extra, words in BAD_SCORES:
        rule, x = FedSat(**ANY), np.zeros(1, np.float32)
        x, _ = a_round(rule, 1, x, [(1, 1, struggle(0.5, 0.5)), (3, 1, extra)])
        assert x == pytest.approx([1.0])
        assert words in rule.phase_report.failures[1]

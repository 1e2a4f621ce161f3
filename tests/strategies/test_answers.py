"""Which answers count, and how the others are told."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Error, Message, MetricRecord, RecordDict

from strategies import FedAdam, FedAvg
from strategies.messages.replies import NO_ANSWER

from .helpers import MODEL, CannedGrid, moved, ndarrays, one_round, record, train, train_reply


def content(arrays=None, metrics=None):
    return RecordDict(
        {
            "arrays": record(arrays if arrays is not None else moved(0.5)),
            "metrics": MetricRecord(metrics if metrics is not None else {"num-examples": 1}),
        }
    )


def truncated():
    arrays = record(moved(0.5))
    whole = arrays["layer.weight"]
    arrays["layer.weight"] = Array(whole.dtype, whole.shape, whole.stype, whole.data[:-5])
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})


BAD = {
    "nan": content(moved(np.nan)),
    "infinite": content(moved(0.5) | {"layer.weight": np.full((2, 3), np.inf, np.float32)}),
    "absurd": content(moved(0.5) | {"layer.weight": np.full((2, 3), 1e38, np.float32)}),
    "missing name": content({"layer.weight": MODEL["layer.weight"]}),
    "extra name": content(moved(0.5) | {"more": np.ones(1, np.float32)}),
    "shape": content(moved(0.5) | {"layer.weight": np.ones((3, 2), np.float32)}),
    "integer dtype": content(moved(0.5) | {"layer.weight": np.ones((2, 3), np.int64)}),
    "truncated": truncated(),
    "zero examples": content(metrics={"num-examples": 0}),
    "negative examples": content(metrics={"num-examples": -3}),
    "nan examples": content(metrics={"num-examples": float("nan")}),
    "huge examples": content(metrics={"num-examples": 1e300}),
    "list of examples": content(metrics={"num-examples": [1, 2]}),
    "no examples": content(metrics={"loss": 1.0}),
    "no metrics": RecordDict({"arrays": record(moved(0.5))}),
    "no arrays": RecordDict({"metrics": MetricRecord({"num-examples": 1})}),
    "empty": RecordDict(),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_answer_is_dropped_and_the_round_goes_on(bad, caplog):
    def client(message, partition):
        return Message(BAD[bad], reply_to=message) if partition == 1 else train_reply(message, moved(0.5))

    strategy, grid = FedAvg(), CannedGrid(3, client)
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        for server_round in range(1, 13):
            arrays, _ = train(strategy, MODEL, grid, server_round)
            np.testing.assert_allclose(ndarrays(arrays)["layer.weight"], 1.5)
            assert list(strategy.phase_report.failures) == [1]
            assert list(strategy.phase_report.metrics) == [0, 2]
    first, tenth = [r.message for r in caplog.records if "node 1 dropped" in r.message]
    assert first.startswith("round 1, train: node 1 dropped: ")
    assert tenth == f"{first.replace('round 1,', 'round 10,')} (for the 10th time)"


def test_if_no_answer_is_left_the_model_and_the_rule_stay():
    strategy = FedAdam()
    before = one_round(strategy, MODEL, [moved(0.5)] * 2, [1, 1])
    state = {name: vector.copy() for name, vector in strategy.rule_state.vectors.items()}
    grid = CannedGrid(2, lambda m, i: Message(Error(0, "broken"), reply_to=m))
    assert train(strategy, before, grid, 2) == (None, None)
    assert strategy.phase_report.failures == {0: "broken", 1: "broken"}
    assert strategy.rule_state.updates == 1
    for name, vector in state.items():
        np.testing.assert_array_equal(strategy.rule_state.vectors[name], vector)


def test_an_answer_that_never_came_is_counted():
    strategy, grid = FedAvg(), CannedGrid(3, lambda m, i: train_reply(m, moved(0.5)))
    grid.order = lambda replies: replies[1:]
    train(strategy, MODEL, grid)
    assert strategy.phase_report.failures == {0: "no answer came, or the app left it out"}


def test_an_error_from_flower_itself_belongs_to_the_message_it_answers():
    """Flower answers for a dead node with its own node id, 1."""

    def client(message, partition):
        if partition != 1:
            return train_reply(message, moved(0.5))
        reply = Message(Error(5, "Node Unavailable"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1
        return reply

    strategy, grid = FedAvg(), CannedGrid(3, client)
    train(strategy, MODEL, grid)
    assert strategy.phase_report.failures == {1: "Node Unavailable"}


def test_a_second_answer_to_the_same_message_does_not_count():
    strategy = FedAvg()
    grid = CannedGrid(2, lambda m, i: train_reply(m, moved(float(i))))
    grid.order = lambda replies: [replies[0], replies[1], replies[1], replies[1]]
    arrays, _ = train(strategy, MODEL, grid)
    np.testing.assert_allclose(ndarrays(arrays)["layer.weight"], 1.5)


@pytest.mark.parametrize("lazily", [False, True])
def test_a_reply_is_known_by_its_message_even_if_that_is_sent_as_replies_are_requested(lazily):
    """Replies may be a generator that sends: an error of Flower's own, and a lost answer, are told."""

    def client(message, partition):
        if partition == 2:
            return None
        if partition != 1:
            return train_reply(message, moved(0.5))
        reply = Message(Error(5, "Node Unavailable"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1_000
        return reply

    strategy, grid = FedAvg(), CannedGrid(4, client)
    messages = strategy.configure_train(1, record(MODEL), ConfigRecord(), grid)
    sending = (reply for _ in [0] for reply in grid.send_and_receive(messages))
    strategy.aggregate_train(1, sending if lazily else grid.send_and_receive(messages))
    assert list(strategy.phase_report.metrics) == [0, 3]
    assert strategy.phase_report.failures == {1: "Node Unavailable", 2: NO_ANSWER}

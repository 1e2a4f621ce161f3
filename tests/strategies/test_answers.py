"""Which answers count, and how the others are told."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Error, Message, MetricRecord, RecordDict

from strategies import FedAdam, FedAvg
from strategies.messages.replies import NO_ANSWER

from .helpers import MODEL, CannedGrid, moved, ndarrays, one_round, record, train, train_reply


def content(**changes):
    metrics = MetricRecord({"num-examples": 1})
    return RecordDict({"arrays": record(moved(0.5) | changes), "metrics": metrics})


def truncated():
    found = content()
    whole = found["arrays"]["layer.weight"]
    found["arrays"]["layer.weight"] = Array(whole.dtype, whole.shape, whole.stype, whole.data[:-5])
    return found


BAD = {  # beside those of test_differing_replies.py
    "absurd": content(**{"layer.weight": np.full((2, 3), 1e38, np.float32)}),
    "integer dtype": content(**{"layer.weight": np.ones((2, 3), np.int64)}),
    "truncated": truncated(),
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

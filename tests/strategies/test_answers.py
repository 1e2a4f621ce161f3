"""Which answers count, and how the others are told."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Error, Message, MetricRecord, RecordDict

from strategies import FedAvg
from strategies.messages.replies import NO_ANSWER

from .helpers import MODEL, CannedGrid, moved, ndarrays, record, train, train_reply


def truncated():
    found = RecordDict({"arrays": record(moved(0.5)), "metrics": MetricRecord({"num-examples": 1})})
    whole = found["arrays"]["layer.weight"]
    found["arrays"]["layer.weight"] = Array(whole.dtype, whole.shape, whole.stype, whole.data[:-5])
    return found


def test_a_bad_answer_is_dropped_and_the_round_goes_on(caplog):
    def client(message, partition):
        return Message(truncated(), reply_to=message) if partition == 1 else train_reply(message, moved(0.5))

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

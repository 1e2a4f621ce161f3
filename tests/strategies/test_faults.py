"""A slow, dead or lying node costs at most its own answer; which answers count; waiting for nodes ends."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Error, Message, MetricRecord, RecordDict

from strategies import FedAvg, TooFewNodes
from strategies.messages.replies import NO_ANSWER

from .helpers import MODEL, OF_MODELS, CannedGrid, moved, ndarrays, one_round, record, train_reply
from .helpers import train as phase

START = {"w": np.zeros(2, np.float32)}


def plus_one(message, partition):
    return train_reply(message, {"w": np.ones(2, np.float32)})


def train(strategy, grid, server_round=1):
    updated, metrics = phase(strategy, START, grid, server_round)
    return updated and ndarrays(updated)["w"], metrics


# ---- min_replies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", OF_MODELS)
def test_too_few_usable_answers_leave_model_and_rule_as_they_were(rule, caplog):
    strategy = OF_MODELS[rule](min_replies=3)
    broken = set()

    def client(message, partition):
        error = Message(Error(8, "broken"), reply_to=message)
        return error if partition in broken else plus_one(message, partition)

    grid = CannedGrid(4, client)
    assert train(strategy, grid)[0] is not None
    state = {name: vector.tobytes() for name, vector in strategy.rule_state.vectors.items()}
    broken = {0, 2}
    with caplog.at_level(logging.WARNING, "flwr.strategies"):
        assert train(strategy, grid, 2) == (None, None)
    assert {name: vector.tobytes() for name, vector in strategy.rule_state.vectors.items()} == state
    assert strategy.rule_state.updates == 1
    assert set(strategy.phase_report.failures) == {0, 2}
    said = "round 2, train: 2 of 4 answers are usable, min_replies is 3: the model is unchanged"
    assert said in caplog.messages
    broken = {0}
    assert train(strategy, grid, 3)[0] is not None
    assert strategy.rule_state.updates == 2


def test_a_round_samples_as_many_as_it_needs():
    """A tenth of 20 nodes would be two, which could never be enough."""
    strategy = FedAvg(fraction_train=0.1, min_replies=5)
    assert train(strategy, CannedGrid(20, plus_one))[0] is not None
    assert len(strategy.phase_report.metrics) == 5


# ---- the weight -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "weight", "cap", "reason"),
    [
        ("num-examples", 101, 100, "'num-examples' is 101, above the cap of 100"),
        ("num-examples", 2**53 + 1, 2.0**53, "is 9007199254740993, above the cap of 9007199254740992"),
        ("num-examples", -1, 100, "'num-examples' is -1, not a positive number"),
        ("num-examples", [3], 100, "'num-examples' is a list, not a positive number"),
        ("num-examples", 10**40, 100, "'num-examples' has more than 64 bits"),
        ("quality", -0.5, 100, "'quality' is -0.5, not a positive number"),
        ("quality", 100.5, 100, "'quality' is 100.5, above the cap of 100"),
        ("trust", 1, 100, "'trust' is missing from the metrics"),
    ],
)
def test_a_weight_beyond_its_bounds_is_refused_in_a_line_that_says_which(key, weight, cap, reason):
    def client(message, partition):
        metrics = {"num-examples": 1, "quality": 1.0, "trust": 1.0}
        if partition == 1:
            metrics[key] = weight
            if key == "trust":
                del metrics["trust"]
        reply = train_reply(message, {"w": np.full(2, 1.0 + partition, np.float32)})
        reply.content["metrics"] = type(reply.content["metrics"])(metrics)
        return reply

    strategy = FedAvg(weighted_by_key=key, max_weight=cap)
    updated, _ = train(strategy, CannedGrid(2, client))
    np.testing.assert_array_equal(updated, 1.0)
    assert strategy.phase_report.failures.keys() == {1}
    assert strategy.phase_report.failures[1].endswith(reason)


def test_the_weight_may_be_as_large_as_the_cap_and_a_fraction_under_another_key():
    models = [{"w": np.full(2, v, np.float32)} for v in (0, 4)]
    np.testing.assert_allclose(one_round(FedAvg(max_weight=3), START, models, [1, 3])["w"], 3.0)
    strategy = FedAvg(weighted_by_key="quality")
    grid = CannedGrid(2, lambda m, i: train_reply(m, models[i], quality=(0.5, 1.5)[i]))
    np.testing.assert_allclose(train(strategy, grid)[0], 3.0)


# ---- nodes that come and go -------------------------------------------------------------------------


class Changing(CannedGrid):
    """A grid whose connected nodes are ``present``."""

    def __init__(self, num_clients, client):
        super().__init__(num_clients, client)
        self.present = list(range(num_clients))

    def get_node_ids(self):
        return self.present


def test_nodes_that_go_and_come_back_are_reported(caplog):
    strategy, grid = FedAvg(), Changing(4, plus_one)
    with caplog.at_level("INFO", "flwr.strategies"):
        for server_round, grid.present in enumerate([[0, 1, 2], [0, 2], [0, 2], [0, 1, 2, 3]], 1):
            train(strategy, grid, server_round)
    output = [line for line in caplog.messages if line.endswith("connected")]
    assert output == [
        "node 1 is no longer connected", "node 1, node 3 are connected",
    ]  # fmt: skip


def test_many_nodes_that_go_are_reported_in_one_line(caplog):
    strategy, grid = FedAvg(), Changing(30, plus_one)
    train(strategy, grid, 1)
    grid.present = range(20, 30)
    with caplog.at_level("WARNING", "flwr.strategies"):
        train(strategy, grid, 2)
    first = ", ".join(f"node {i}" for i in range(8))
    output = [line for line in caplog.messages if line.endswith("connected")]
    assert output == [f"{first} and 12 more are no longer connected"]


def test_a_round_goes_on_with_the_nodes_that_are_left():
    strategy = FedAvg(min_train_nodes=1, min_available_nodes=1, min_replies=2, node_timeout=0.1)
    grid = Changing(5, plus_one)
    assert train(strategy, grid)[0] is not None
    grid.present = [1, 4]
    assert train(strategy, grid, 2)[0] is not None
    assert sorted(strategy.phase_report.metrics) == [1, 4]
    grid.present = [4]
    output = r"^waited 0.1 s for 2 nodes \(round 3, train: min_replies\); 1 connected$"
    with pytest.raises(TooFewNodes, match=output):
        train(strategy, grid, 3)


def test_waiting_ends_when_the_nodes_are_there(monkeypatch, caplog):
    grid = Changing(3, plus_one)
    grid.present = [0]
    monkeypatch.setattr(
        "strategies.messages.nodes.time.sleep", lambda seconds: grid.present.append(len(grid.present))
    )
    with caplog.at_level(logging.INFO, "flwr.strategies"):
        assert train(FedAvg(min_available_nodes=3), grid)[0] is not None
    waits = [m for m in caplog.messages if m.startswith("Waiting")]
    needed = "minimum required: 3, round 1, train: min_available_nodes"
    assert waits == [f"Waiting for nodes to connect: {n} connected ({needed})." for n in (1, 2)]


# ---- which partition a node holds -------------------------------------------------------------------


class Claiming(Changing):
    """Node i claims partition ``claims[i]``."""

    claims = ()

    def work(self, messages, timeout):
        for message in messages:
            i = message.metadata.dst_node_id
            if not message.metadata.message_type.startswith("query"):
                yield self.client(message, i)
            elif self.claims[i] == "error":
                yield Message(Error(8, "broken"), reply_to=message)
            else:
                answer = {} if self.claims[i] is None else {"partition-id": self.claims[i]}
                yield Message(RecordDict({"partition": ConfigRecord(answer)}), reply_to=message)


def test_a_partition_is_one_nodes_only(caplog):
    """Of two that claim it the first by node id is believed: no metrics stand under another's name."""
    strategy, grid = FedAvg(ask_partitions=True), Claiming(6, plus_one)
    grid.claims = (1, 0, 1, -1, None, "error")
    with caplog.at_level(logging.INFO, "flwr.strategies"):
        assert train(strategy, grid)[0] is not None
    assert list(strategy.phase_report.metrics) == [0, 1, 2, 3, 4, 5]
    assert "node 2 claims partition 1, which another connected node holds" in caplog.text


def test_a_node_that_takes_the_place_of_a_dead_one_gets_its_partition():
    """At once, or when the dead one is no longer counted as connected: a restarted SuperNode has a new id."""
    for between in ([0, 1], [0, 1, 2]):
        strategy, grid = FedAvg(ask_partitions=True), Claiming(3, plus_one)
        grid.claims, grid.present = (0, 1, 1), [0, 1]
        train(strategy, grid)
        grid.present = between
        train(strategy, grid, 2)
        assert list(strategy.phase_report.metrics) == [0, 1, 2][: len(between)]
        grid.present = [0, 2]
        train(strategy, grid, 3)
        assert list(strategy.phase_report.metrics) == [0, 1]


def test_a_node_cannot_answer_the_question_put_to_another():
    class Impostor(Claiming):
        def work(self, messages, timeout):
            for reply in super().work(messages, timeout):
                if reply.metadata.message_type.startswith("query"):
                    reply.metadata.__dict__["_src_node_id"] = 0  # all say that they are node 0
                yield reply

    strategy, grid = FedAvg(ask_partitions=True), Impostor(3, plus_one)
    grid.claims = (2, 1, 0)
    train(strategy, grid)
    assert strategy.node_directory.partition(0) == 2
    assert strategy.node_directory.partition(2) == 0


# ---- which answers count, and how the others are told -------------------------------------------------


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
            arrays, _ = phase(strategy, MODEL, grid, server_round)
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

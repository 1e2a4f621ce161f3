"""Which partition a node holds: who answers late, never, or has none."""

import logging

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from strategies import FedAvg, TooFewNodes
from strategies.messages.nodes import NodeDirectory, _are

from ..helpers import CannedGrid

NODES = {70: 2, 80: 0, 90: 1}
"""Partition by node id."""


class Asked(CannedGrid):
    """Three nodes; `answer` gives what they say to the query, None for silence. ``queries`` counts them."""

    def __init__(self, answer):
        super().__init__(3, lambda message, node: None)
        self.answer = answer
        self.queries = dict.fromkeys(NODES, 0)

    def get_node_ids(self):
        return list(NODES)

    def work(self, messages, timeout):
        for message in messages:
            node = message.metadata.dst_node_id
            self.queries[node] += 1
            found = self.answer(node, self.queries[node])
            if isinstance(found, Error):
                yield Message(found, reply_to=message)
            elif found is not None:
                yield Message(RecordDict({"partition": ConfigRecord(found)}), reply_to=message)


def holds(node):
    return {"partition-id": NODES[node]}


def late(node, query):
    """Node 80 answers the third query, the others the first."""
    return holds(node) if node != 80 or query == 3 else None


def test_who_answers_late_is_asked_until_it_does_and_named_once(caplog):
    caplog.set_level(logging.INFO, "flwr")
    grid, nodes = Asked(late), NodeDirectory(True, 60, 7)
    assert nodes.connected(grid, 3, "test") == [90, 70, 80]
    assert nodes.partition(80) == 80
    assert nodes.connected(grid, 3, "test") == [90, 70, 80]
    assert nodes.connected(grid, 3, "test") == [80, 90, 70]
    assert nodes.partition(80) == 0
    assert nodes.connected(grid, 3, "test") == [80, 90, 70]
    assert grid.queries == {70: 1, 80: 3, 90: 1}
    warned = [r.message for r in caplog.records if r.levelname == "WARNING"]
    said = "node 80 is connected, and did not say within 7 s which partition it holds"
    assert warned == [f"{said}; it is asked again before each round"]
    assert "node 80 holds partition 0" in caplog.messages
    assert not [line for line in caplog.messages if "no longer" in line]


def test_a_message_that_did_not_arrive_is_no_answer_and_an_error_of_the_app_is_one():
    """Flower's error 5: the node is not there; 2: the app has raised, for it knows no such query."""
    grid = Asked(lambda node, query: Error({70: 5, 80: 2}.get(node, 3)))
    nodes = NodeDirectory(True, 60, 1)
    for _ in range(3):
        assert nodes.connected(grid, 3, "test") == [70, 80, 90]
    assert grid.queries == {70: 3, 80: 1, 90: 3}


@pytest.mark.slow
def test_where_it_is_needed_no_round_begins_without_it():
    grid, nodes = Asked(late), NodeDirectory(True, 60, 0.1)
    nodes.needed_by = "holdout-clients"
    assert nodes.connected(grid, 3, "test") == [80, 90, 70]
    assert grid.queries == {70: 1, 80: 3, 90: 1}


def test_where_it_is_needed_and_does_not_come_the_run_ends_in_a_line():
    grid, nodes = Asked(lambda node, query: None if node == 80 else holds(node)), NodeDirectory(True, 0, 1)
    nodes.needed_by = "holdout-clients"
    with pytest.raises(TooFewNodes) as caught:
        nodes.connected(grid, 3, "test")
    assert str(caught.value) == (
        "waited 0 s for the partition of each node, by which holdout-clients goes: node 80 has not answered"
    )


def test_two_nodes_of_one_partition_where_it_is_needed():
    grid, nodes = (
        Asked(lambda node, query: {"partition-id": 1 if node == 90 else 0}),
        NodeDirectory(True, 0, 1),
    )
    nodes.needed_by = "devices"
    with pytest.raises(TooFewNodes, match="devices goes: node 80 claims partition 0, another's$"):
        nodes.connected(grid, 3, "test")


def test_a_node_without_a_partition_where_it_is_needed_is_not_waited_for():
    grid, nodes = Asked(lambda node, query: {} if node == 80 else holds(node)), NodeDirectory(True, 600, 1)
    nodes.needed_by = "availability"
    with pytest.raises(
        TooFewNodes, match="^node 80 has no partition-id in its node config, and availability"
    ):
        nodes.connected(grid, 3, "test")


def test_a_strategy_that_does_not_ask_needs_nothing():
    grid = Asked(late)
    assert FedAvg().node_directory.connected(grid, 3, "test") == [70, 80, 90]
    assert sum(grid.queries.values()) == 0


def test_at_most_eight_names_are_listed():
    assert _are(["a"]) == "a is"
    assert _are([*"abcdefgh"]) == "a, b, c, d, e, f, g, h are"
    assert _are([*"abcdefghij"]) == "a, b, c, d, e, f, g, h and 2 more are"

"""What a node answers when it is asked: the same in a simulation, under Flower and on SuperNodes."""

from pkgutil import resolve_name

import pytest
from flwr.app import Message, RecordDict

from fedbn_flower import client_app
from fedbn_flower.core.ground import wire
from fedbn_flower.runtime import client_adapter
from fedbn_flower.runtime.grid import identify_process, node_context
from fedbn_flower.runtime.queries import QUERIES


def test_every_query_of_the_wire_is_answered():
    asked = {value for name, value in vars(wire).items() if name.startswith("QUERY_")}
    assert asked == {f"query.{name}" for name in QUERIES}
    assert all(callable(resolve_name(f"fedbn_flower.{place}")) for place in QUERIES.values())


@pytest.mark.parametrize("door", [client_app, client_adapter], ids=["Flower", "simulation"])
def test_both_apps_answer(door, configured):
    identify_process()
    node = node_context(1, 2, configured().to_user_config())
    answer = door.app(Message(RecordDict(), node.node_id, wire.QUERY_PARTITION_ID), node)
    assert answer.content[wire.PARTITION] == {wire.PARTITION_ID: 1}
    with pytest.raises(ValueError, match="No query function registered with name 'weather'"):
        door.app(Message(RecordDict(), node.node_id, "query.weather"), node)

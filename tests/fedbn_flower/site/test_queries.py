"""What a node answers when it is asked: the same in a simulation, under Flower and on SuperNodes."""

from pkgutil import resolve_name

import pytest
from flwr.app import Message, RecordDict

from fedbn_flower import client_app
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.ground import wire
from fedbn_flower.core.ground.settings import flag_of
from fedbn_flower.core.partition_id import NODE_KEYS, partition_id_of
from fedbn_flower.privacy.floors import SECAGG_KEYS, Floors
from fedbn_flower.runtime.grid import identify_process, node_context
from fedbn_flower.site import adapter as client_adapter
from fedbn_flower.site.queries import QUERIES

from ...integration.processes import ROOT


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


@pytest.mark.parametrize(
    ("keys", "meant"),
    [
        ({"partition-id": 1, "state_dir": "/var/lib"}, "state-dir"),
        ({"partition_id": 1}, "partition-id"),
        ({"partition-id": 1, "secag-partners": "partners"}, "secagg-partners"),
        ({"partition-id": 1, "SecAgg-Required": True}, "secagg-required"),
        ({"partition-id": 1, "data-path": "x", "dataset-path": "y", "data-paths": "z", "rounds": 3}, ""),
    ],
)
def test_a_misspelt_key_of_a_node_is_one_line_and_those_of_other_apps_are_let_be(keys, meant):
    """Else a site would keep nothing, or protect nobody, and not say so."""
    node = node_context(1, 2, {})
    node.node_config = keys
    if not meant:
        assert partition_id_of(node) == 1
        return
    with pytest.raises(UserError, match=rf"^node-config: unknown name '\S+' \(did you mean '{meant}'\?\)$"):
        partition_id_of(node)


def test_all_keys_of_a_node_are_known_and_in_the_guide():
    guide = "\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert all(f"`{key}" in guide or f"{key}=" in guide for key in NODE_KEYS)
    of_privacy = {flag_of(name) for name in Floors.model_fields} | {*SECAGG_KEYS}
    assert of_privacy == {key for key in NODE_KEYS if key.startswith(("dp-", "secagg-"))}

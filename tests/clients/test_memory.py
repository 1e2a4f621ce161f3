"""What a client remembers: written, kept, and not kept."""

import re
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, RecordDict

from clients import CLIENTS, OBJECTIVES, ContextStore, FedAvgClient, Memory

ONE, TWO = {"w": np.ones(2, np.float32)}, {"w": np.full(2, 2, np.float32)}


def test_the_page_of_memory_names_all_that_have_one():
    page = (Path(__file__).parents[2] / "docs/concepts/memory.md").read_text()
    table = page.partition("| kept | by |")[2].partition("\n\n")[0]
    rows = [row.split("|")[2] for row in table.splitlines()[2:]]
    named = [(" objective" in row, name) for row in rows for name in re.findall("`(.*?)`", row)]
    keep_entries = {name for name, c in CLIENTS.items() if c.local_entries is not FedAvgClient.local_entries}
    assert sorted(named) == sorted(
        [
            *((False, name) for name, c in CLIENTS.items() if c.remembers or name in keep_entries),
            *((True, name) for name, o in OBJECTIVES.items() if o.remembers),
        ]
    )


def test_what_is_written_is_read_and_kept_only_by_the_commit():
    state = RecordDict()
    memory = Memory(ContextStore(state))
    assert memory.read("g") is None
    memory.write("g", ONE)
    np.testing.assert_array_equal(memory.read("g")["w"], ONE["w"])
    assert not state
    assert Memory(ContextStore(state)).read("g") is None
    memory.commit()
    np.testing.assert_array_equal(Memory(ContextStore(state)).read("g")["w"], ONE["w"], strict=True)


def test_what_is_written_is_as_it_was_then():
    """A model that is shared trains on before the commit."""
    store = ContextStore()
    memory, array = Memory(store), np.ones(2)
    memory.write("g", {"w": array})
    array += 1
    memory.commit()
    np.testing.assert_array_equal(store.read("g")["w"], [1, 1])


def test_what_is_read_is_the_readers_own():
    store = ContextStore()
    store.save({"g": ONE})
    store.read("g")["w"][:] = 5
    np.testing.assert_array_equal(store.read("g")["w"], [1, 1])


def test_only_the_groups_that_were_written_change_in_the_context():
    """A worker tells by that which memories to send back."""
    store = ContextStore()
    store.save({"g": ONE, "h": ONE})
    before = dict(store.state)
    memory = Memory(store)
    memory.write("h", TWO)
    memory.commit()
    assert store.state["fedbn.g"] is before["fedbn.g"]
    assert store.state["fedbn.h"] is not before["fedbn.h"]
    memory.commit()
    kept = {group: arrays["w"].tolist() for group, arrays in store.groups().items()}
    assert kept == {"g": [1, 1], "h": [2, 2]}


def test_records_of_others_in_the_context_are_left_alone():
    state = RecordDict({"mod": ArrayRecord({})})
    store = ContextStore(state)
    store.save({"g": ONE})
    assert list(store.groups()) == ["g"]
    assert list(state) == ["mod", "fedbn.g"]


def test_a_store_that_fails_leaves_what_was_written_uncommitted():
    class Full(ContextStore):
        def save(self, written):
            raise OSError("no space left")

    memory = Memory(Full())
    memory.write("g", ONE)
    with pytest.raises(OSError, match="no space"):
        memory.commit()
    assert Full().groups() == {}
    np.testing.assert_array_equal(memory.read("g")["w"], ONE["w"])

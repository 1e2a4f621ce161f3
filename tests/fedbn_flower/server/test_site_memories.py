"""What the server tells sites at the end of a run."""

from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedbn_flower.core.errors import RunFailed
from fedbn_flower.runtime.grid import FIRST_NODE_ID, InlineGrid
from fedbn_flower.server.site_memories import SiteMemories, noting


class Silent(InlineGrid):
    """Nobody answers."""

    def send_and_receive(self, messages, *, timeout):
        self.told = [(message.metadata.dst_node_id, timeout) for message in messages]
        return []


@pytest.mark.parametrize(("timeout", "waited"), [(5.0, 5.0), (3600.0, 60.0)])
def test_a_silent_site_is_waited_for_as_long_as_an_answer_and_a_minute_at_most(
    configured, caplog, timeout, waited
):
    """Its files stay, which the log says; a site without files is not told."""
    grid = Silent(2, configured().to_user_config())
    nodes = SimpleNamespace(partition=lambda node: node - FIRST_NODE_ID)
    memories = SiteMemories(nodes, kept={"1": 3}, on_disk=True)
    with caplog.at_level("INFO", "flwr.fedbn"):
        memories.tell_complete(grid, "run", 3, timeout)
    assert grid.told == [(FIRST_NODE_ID + 1, waited)]
    assert (
        "1 of 1 sites have not heard that the run is complete, and keep all of its memories: 1" in caplog.text
    )


def test_a_resumed_run_ends_if_all_that_had_a_memory_have_lost_it_whoever_is_new(caplog):
    nodes = SimpleNamespace(partition=lambda node: node, name=str)
    memories = SiteMemories(nodes, resumes=True, kept={"0": 3, "1": 3}, on_disk=True)
    memories.note(object(), 4, "train", [(0, 0, 4, True), (1, 0, 4, True), (2, 0, 4, True)])
    with pytest.raises(RunFailed, match="none of 2 sites has its memory of this run any more"):
        memories.check()
    assert memories.lost == {"0": [4], "1": [4]}


def test_what_a_reply_says_of_its_sites_memory():
    """The round that it had one of, and that it has one of now, which is no earlier."""

    def noted(**said):
        content, found = RecordDict({"memory": ConfigRecord(said)}), []
        [*noting([Message(content, reply_to=Message(RecordDict(), 5, "train"))], found)]
        return found

    assert noted(found=2, kept=2) == [(5, 2, 2, False)]
    assert noted(found=0, kept=2, **{"on-disk": True}) == [(5, 0, 2, True)]
    for wrong in ({"found": 3}, {"found": -1}, {"found": True}, {"found": 1.0}, {}):
        assert noted(kept=2, **wrong) == []

"""What an app's grid does with messages: their order, their time, who may send."""

import threading
import time
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedbn_flower.apps import app_grid
from fedbn_flower.apps.app_grid import AppGrid
from fedbn_flower.apps.rounds import Rounds
from fedbn_flower.core.private import app_run
from fedbn_flower.runtime.grid import InlineGrid

from .written import ask


class Reversed(InlineGrid):
    """Gives replies as they may come from workers."""

    calls = ()

    def work(self, messages, timeout):
        self.calls += ([message.metadata.dst_node_id for message in messages],)
        for message in reversed(messages):
            yield Message(message.content, reply_to=message)


def test_replies_are_a_list_in_the_order_of_the_messages():
    grid = AppGrid(Reversed(3, {}), app_run(1, "app", "", {}), Rounds())
    replies = ask(grid, nodes=[3, 2, 4])
    assert [replies[place].metadata.src_node_id for place in range(len(replies))] == [3, 2, 4]


def test_a_node_has_its_messages_one_after_the_other():
    """Workers would answer those of one call at the same time, from the same state."""
    local = Reversed(3, {})
    replies = ask(AppGrid(local, app_run(1, "app", "", {}), Rounds()), nodes=[3, 2, 3, 3, 2, 4])
    assert [reply.metadata.src_node_id for reply in replies] == [3, 2, 3, 3, 2, 4]
    assert local.calls == ([3, 2, 4], [3, 2], [3])


def test_messages_that_flower_refuses_are_not_sent(run, tmp_path):
    found = []

    def main(grid, context):
        content = RecordDict()
        messages = [Message(content, node, "train") for node in (2, 99, 3)]
        messages[2].metadata.ttl = -1.0
        found.append(list(grid.push_messages(messages)))

    run(main)
    assert len(found[0]) == 1
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "Invalid destination node ID for Message: 99" in log
    assert "`metadata.ttl` must be higher than zero" in log


def test_pushed_messages_are_answered_when_they_are_pulled(run):
    found = []

    def main(grid, context):
        messages = [Message(RecordDict(), node, "train", group_id="5") for node in grid.get_node_ids()]
        first, *others = grid.push_messages(messages)
        replies = list(grid.pull_messages([first]))
        found.append([(one.metadata.reply_to_message_id == first, one.metadata.group_id) for one in replies])
        found.append(len(list(grid.pull_messages(others))))
        (gone,) = grid.pull_messages([first])
        found.append((gone.error.code, gone.metadata.reply_to_message_id == first))

    result = run(main)
    assert found == [[(True, "5")], 2, (3, True)]
    assert result.rounds == 5


def test_what_the_app_changes_after_it_has_pushed_is_not_sent(run):
    """Also where two messages have the same content, which is then copied once."""
    found = []

    def main(grid, context):
        content = RecordDict({"config": ConfigRecord({"n": 1})})
        ids = list(grid.push_messages([Message(content, node, "train") for node in (2, 3)]))
        content["config"]["n"] = 2
        found.extend(reply.content["config"]["n"] for reply in grid.pull_messages(ids))

    run(main)
    assert found == [1, 1]


def test_pushed_messages_that_nobody_pulls_are_answered_too(run):
    """Before the next messages are sent, and at the end of the run."""
    seen = []

    def train(message, context):
        seen.append((context.node_config["partition-id"], message.content["config"]["n"]))
        return Message(message.content, reply_to=message)

    def main(grid, context):
        def push(node, number):
            content = RecordDict({"config": ConfigRecord({"n": number})})
            return list(grid.push_messages([Message(content, node, "train")]))

        push(2, 1)
        push(3, 2)
        assert seen == []
        ask(grid, nodes=[2], n=3)
        assert seen == [(0, 1), (1, 2), (0, 3)]
        push(3, 4)

    run(main, train, nodes=2)
    assert seen == [(0, 1), (1, 2), (0, 3), (1, 4)]


@pytest.fixture
def passes(monkeypatch):
    """Has seconds pass, for the grid."""
    passed = []
    clock = SimpleNamespace(
        monotonic=lambda: sum(passed), time=lambda: time.time() + sum(passed), sleep=time.sleep
    )
    monkeypatch.setattr(app_grid, "time", clock)
    return passed.append


def test_a_timeout_leaves_out_who_takes_longer_and_nobody_else(run, passes):
    """The others would have worked meanwhile, on nodes of their own: together they take longer too."""

    def train(message, context):
        passes(600 if message.metadata.dst_node_id == 3 else 300)
        return Message(message.content, reply_to=message)

    found = []
    run(lambda grid, context: found.extend(ask(grid, nodes=[3, 2, 4], timeout=400)), train)
    assert [one.metadata.src_node_id for one in found] == [2, 4]


@pytest.mark.parametrize(("of_message", "code"), [(1000, 3), (5000, 4)])
def test_what_expires_is_answered_by_flowers_error(run, passes, of_message, code):
    """A message, or its reply, at a node that takes too long; the other's are in time."""

    def train(message, context):
        reply = Message(message.content, reply_to=message, ttl=1000)
        if message.metadata.dst_node_id == 3:
            passes(2000)
        return reply

    found = []
    run(
        lambda grid, context: [found.extend(ask(grid, nodes=[node], ttl=of_message)) for node in (2, 3)],
        train,
    )
    assert [one.error.code if one.has_error() else None for one in found] == [None, code]


def test_several_threads_of_a_server_take_turns(run):
    """Replies are those of each thread's messages; clients run one at a time."""
    found, running, most = {}, [], []

    def train(message, context):
        running.append(1)
        time.sleep(0.01)
        most.append(len(running))
        running.pop()
        return Message(message.content, reply_to=message)

    def main(grid, context):
        def work(node):
            found[node] = [reply.metadata.src_node_id for reply in ask(grid, nodes=[node, node])]

        threads = [threading.Thread(target=work, args=(node,)) for node in grid.get_node_ids()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    run(main, train)
    assert found == {2: [2, 2], 3: [3, 3], 4: [4, 4]}
    assert max(most) == 1


def test_what_a_client_keeps_of_its_reply_is_its_own(run):
    client, kept = ClientApp(), RecordDict({"config": ConfigRecord({"n": 1})})
    client.train()(lambda message, context: Message(kept, reply_to=message))
    found = []

    def main(grid, context):
        for _ in range(2):
            (reply,) = ask(grid, nodes=[2])
            found.append(reply.content["config"]["n"])
            reply.content["config"]["n"] = 5

    run(main, client)
    assert found == [1, 1]

"""How messages are put together into calls; and replies that stream from Flower's own grids.

These are stood in for: their state is a list of arrivals.
"""

import weakref
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.core.errors import RunCutOff
from fedbn_flower.core.private import set_message_id
from fedbn_flower.runtime import server_app
from fedbn_flower.runtime.grid import FIRST_NODE_ID, identify_process, in_groups
from fedbn_flower.runtime.server_app import AT_ONCE, StreamingGrid
from fedbn_flower.server.exchange import OVER_THE_NETWORK


class Arrivals:
    """A grid like Flower's: at the n-th look, ``arrivals[n]`` more replies are there, of those asked for."""

    def __init__(self, arrivals):
        identify_process()
        self.arrivals = iter(arrivals)
        self.pushed, self.there, self.asked = {}, set(), []

    def push_messages(self, messages):
        for number, message in enumerate(messages):
            set_message_id(message, str(number))
            self.pushed[str(number)] = message
        return list(self.pushed)

    def pull_messages(self, message_ids):
        if "0" in message_ids or not self.asked or int(message_ids[0]) <= int(self.asked[-1][0]):
            self.there.update(map(str, next(self.arrivals, ())))
        self.asked.append(message_ids)
        return [
            Message(RecordDict(), reply_to=self.pushed.pop(one))
            for one in message_ids
            if one in self.there & self.pushed.keys()
        ]


def messages(count):
    identify_process()
    return [Message(RecordDict(), FIRST_NODE_ID + n, "train") for n in range(count)]


def answered(replies):
    return [int(reply.metadata.reply_to_message_id) for reply in replies]


def test_replies_come_as_they_arrive_few_at_a_time():
    grid = Arrivals([[5], [], [0, 1, 2], [3, 4], [6, 7, 8, 9]])
    replies = StreamingGrid(grid).send_and_receive(messages(10))
    assert len(grid.pushed) == 10  # sent before the first reply is asked for
    assert answered(replies) == [5, 0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert max(map(len, grid.asked)) == AT_ONCE


@pytest.mark.parametrize(
    ("count", "floats", "expected"),
    [(50, 0, 4), (50, 1, 50), (50, 10**6, 16), (50, 2**23, 4), (16, 2**23, 1)],
)
def test_so_many_small_replies_are_asked_for_together_that_a_look_is_one_request(count, floats, expected):
    """2^26 bytes of replies: 16 of four million bytes and a header. Of larger ones one, but no more than 16
    requests a look."""
    record = ArrayRecord({"model": Array(np.zeros(floats, np.float32))}) if floats else ArrayRecord()
    identify_process()
    content = RecordDict({"arrays": record})
    sent = [Message(content, FIRST_NODE_ID + n, "train") for n in range(count)]
    grid = Arrivals([[], range(count)])
    assert sorted(answered(StreamingGrid(grid).send_and_receive(iter(sent)))) == list(range(count))
    assert max(map(len, grid.asked)) == expected
    assert len(grid.asked) >= 2 * -(-count // expected)


@pytest.mark.parametrize("waits", [True, False])
def test_a_reply_is_not_kept_while_others_are_asked_for(waits):
    class Looks(Arrivals):
        def pull_messages(self, message_ids):
            assert not any(one() for one in seen)
            assert len(message_ids) <= AT_ONCE
            return super().pull_messages(message_ids)

    seen, sent = [], messages(9)
    grid = StreamingGrid(Looks([range(8), [8]] if waits else [range(9)]))
    for reply in grid.send_and_receive(sent) if waits else grid.pull_messages(grid.push_messages(sent)):
        seen.append(weakref.ref(reply))
        del reply
    assert len(seen) == 9
    assert not any(one() for one in seen)


def test_what_has_not_come_in_time_is_left_out():
    replies = StreamingGrid(Arrivals([[1]])).send_and_receive(messages(3), timeout=0.1)
    assert answered(replies) == [1]


@pytest.mark.parametrize(
    ("connected", "expected"),
    [
        (False, [0.025, 0.03125, 0.0390625, 0.048828125, 0.06103515625, 0.02, 0.025]),
        (True, [0.125, 0.15625, 0.1953125, 0.244140625, 0.30517578125, 0.1, 0.125]),
    ],
)
def test_looks_follow_each_other_quickly_where_none_is_a_request(monkeypatch, connected, expected):
    """The sixth look and the eighth find a reply each; Flower simulates nodes without a connection."""
    grid, slept = Arrivals([[], [], [], [], [], [1], [], [0]]), []
    if connected:
        grid._retry_invoker = SimpleNamespace(max_time=None, recoverable_exceptions=())
    monkeypatch.setattr(server_app.time, "sleep", slept.append)
    assert answered(StreamingGrid(grid).send_and_receive(messages(2))) == [1, 0]
    assert slept == pytest.approx(expected)


def test_a_reply_waits_for_a_quarter_of_what_it_took_and_an_eighth_of_a_second_at_most():
    """And for no more than three seconds: wherever it falls between two looks at a SuperLink. The sum of
    waits of 0.1 x 1.25^n, n from 1 on, is 0.5 x (1.25^n - 1)."""
    looks, wait = [0.0], OVER_THE_NETWORK.shortest
    while looks[-1] < 60:
        wait = OVER_THE_NETWORK.after(wait)
        looks.append(looks[-1] + wait)
    for before, after in pairwise(looks):
        assert after - before == pytest.approx(min(0.125 + before / 4, 3))


def test_a_superlink_that_is_lost_while_replies_are_awaited():
    class Lost(Arrivals):
        def pull_messages(self, message_ids):
            raise ConnectionError("refused")

    class Retries:
        max_time = None
        recoverable_exceptions = (ConnectionError,)

    grid = Lost([])
    grid._retry_invoker = Retries()
    with pytest.raises(RunCutOff, match=r"the SuperLink is lost \(refused\)"):
        list(StreamingGrid(grid).send_and_receive(messages(2)))


@given(st.lists(st.integers(1, 30), max_size=4), st.integers(1, 9))
def test_groups_are_even_in_order_and_of_one_content(counts, size):
    contents = [object() for _ in counts]
    messages = [SimpleNamespace(content=c) for c, n in zip(contents, counts, strict=True) for _ in range(n)]
    groups = list(in_groups(messages, size))
    assert [message for group in groups for message in group] == messages
    for content, count in zip(contents, counts, strict=True):
        sizes = [len(g) for g in groups if g[0].content is content]
        assert sum(sizes) == count
        assert max(sizes) <= size
        assert max(sizes) - min(sizes) <= 1
        fewest = -(-count // size)
        assert len(sizes) == (fewest if fewest in (1, count) else fewest + fewest % 2)
    assert all(len({id(message.content) for message in group}) == 1 for group in groups)

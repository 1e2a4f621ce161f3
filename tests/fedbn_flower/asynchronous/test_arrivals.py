"""Asynchronous protocols on the real clock: nodes that take their time, by hand."""

from itertools import pairwise
from math import inf, sqrt
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message
from flwr.serverapp.exception import InconsistentMessageReplies
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbn_flower.asynchronous import arrivals
from fedbn_flower.asynchronous.arrivals import ArrivingBuffers
from fedbn_flower.core.private import ErrorCode
from fedbn_flower.extensions import Moment
from fedbn_flower.records.checkpoint import RunTotals
from fedbn_flower.server.exchange import Exchange
from strategies import FedAvg
from strategies.aggregation.buffers import protocol_of
from tests.strategies.helpers import CannedGrid, ndarrays, record, train_reply

MOVES = {0: 1.0, 1: 10.0, 2: 100.0, 3: 1000.0}
"""What training adds to the model at each node."""


class Nodes(CannedGrid):
    """Node i answers ``seconds[i]`` after it was asked, one message at a time, on a clock that `sleep` moves.

    It is connected from ``since[i]`` on. ``faults[i]`` makes its answer an ``error``, ``malformed``, or
    fails ``once``.
    """

    def __init__(self, seconds, since=None, faults=None):
        super().__init__(len(seconds), self.answer)
        self.seconds, self.since, self.faults = seconds, since or {}, faults or {}
        self.now, self.most = 0.0, 0
        self.out = {}
        self.asked = []

    def get_node_ids(self):
        return [node for node in range(self.num_clients) if self.since.get(node, 0) <= self.now]

    def answer(self, message, node):
        fault = self.faults.pop(node) if self.faults.get(node) == "once" else self.faults.get(node)
        if fault in ("error", "once"):
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "no luck"), reply_to=message)
        model = ndarrays(message.content.array_records["arrays"])
        moved = {name: array + np.float32(MOVES[node]) for name, array in model.items()}
        return train_reply(message, {"other": moved["w"]} if fault == "malformed" else moved)

    def push_messages(self, messages):
        for message in messages:
            node, key = message.metadata.dst_node_id, f"pushed-{len(self.asked)}"
            message.metadata.__dict__["_message_id"] = key
            self.out[key] = (self.now + self.seconds[node], message)
            self.asked.append((self.now, node))
        self.most = max(self.most, len(self.out))
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids):
        due = sorted((self.out[key][0], key) for key in message_ids if self.out[key][0] <= self.now)
        messages = [self.out.pop(key)[1] for _, key in due]
        return [self.answer(message, message.metadata.dst_node_id) for message in messages]

    def sleep(self, seconds):
        """Until something happens, a deadline of whole seconds at the latest."""
        events = [when for when, _ in self.out.values()] + list(self.since.values())
        self.now = min([when for when in events if when > self.now] + [float(int(self.now) + 1)])


def trained(grid, protocol, concurrency, rounds, timeout=inf, seed=0):
    """By buffer: (version, partition) of the used answers, when it was full, its failures, and the model."""
    rule, found = FedAvg(ask_partitions=True, weighted_by_key=None), []
    arrays = record({"w": np.zeros(1, "f4")})
    buffers = ArrivingBuffers(protocol_of(protocol, 0.5), seed, concurrency)
    for number in range(1, rounds + 1):
        exchange = Exchange(grid, timeout)

        def configure(number=number, arrays=arrays):
            return rule.configure_train(number, arrays, ConfigRecord(), grid)

        names = (*arrays,)
        of_round = (number, False, "", False, names, names, frozenset(), rule, exchange)
        moment = Moment(*of_round, lambda *_: None, RunTotals())
        replies = buffers.answers(moment, arrays, configure)
        arrays = rule.aggregate_train(number, replies)[0] or arrays
        report, stale = rule.phase_report, rule._buffer_.staleness
        answers = [(number - 1 - stale[partition], partition) for partition in report.metrics]
        found.append((answers, grid.now, dict(report.failures), ndarrays(arrays)["w"].item()))
    return found


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Puts the buffers on a grid's clock."""

    def follow(grid):
        monkeypatch.setattr(arrivals, "time", SimpleNamespace(monotonic=lambda: grid.now, sleep=grid.sleep))
        return grid

    return follow


def test_buffers_by_hand(clock):
    """The schedule of `test_runs.test_a_schedule_by_hand`, as it comes; and the models it makes.

    Client 2's answer is of version 0, when there is version 2: it counts 1/sqrt(3).
    """
    found = trained(clock(Nodes([2, 3, 7])), "fedbuff:2", 3, 4)
    assert [(answers, now) for answers, now, _, _ in found] == [
        ([(0, 0), (0, 1)], 3),
        ([(1, 0), (1, 1)], 6),
        ([(0, 2), (2, 0)], 8),
        ([(2, 1), (3, 0)], 10),
    ]
    steps = [(1 + 10) / 2, (1 + 10) / 2, (100 / sqrt(3) + 1) / 2, (10 / sqrt(2) + 1) / 2]
    assert [x for *_, x in found] == pytest.approx(np.cumsum(steps))


def test_an_answer_that_is_there_is_fetched_once_those_before_are_taken(clock):
    """Four are: a server with a large model would have all of them in memory."""

    class Lazy(Nodes):
        fetched = 0

        def pull_messages(self, message_ids):
            for reply in super().pull_messages(message_ids):
                self.fetched += 1
                yield reply

    grid = clock(Lazy([1, 1, 1, 1]))
    assert trained(grid, "fedbuff:2", 4, 1)[0][0] == [(0, 0), (0, 1)]
    assert grid.fetched == 2


def test_fedasync_by_hand(clock):
    """Client 1 lands at 2.5, with version 0 when there is version 2: x is the mean of x and its model."""
    found = trained(clock(Nodes([1, 2.5])), "fedasync", 2, 3)
    assert [answers for answers, *_ in found] == [[(0, 0)], [(1, 0)], [(0, 1)]]
    first = 0.5 * 1
    second = 0.5 * first + 0.5 * (first + 1)
    assert [x for *_, x in found] == pytest.approx([first, second, 0.5 * second + 0.5 * 10])


def test_a_node_that_never_answers_costs_its_own_answer(clock):
    """It holds its place for ten seconds; the others' buffers do not wait. It is asked again afterwards."""
    grid = clock(Nodes([1, inf, 1.5]))
    found = trained(grid, "fedbuff:2", 3, 12, timeout=10)
    assert all({partition for _, partition in answers} == {0, 2} for answers, *_ in found)
    assert [now for _, now, *_ in found] == [1.5 * number for number in range(1, 13)]
    failed = [number for number, (_, _, failures, _) in enumerate(found, start=1) if failures]
    assert [(number, *found[number - 1][2].items()) for number in failed] == [
        (7, (1, "no answer came, or the app left it out"))
    ]
    assert [when for when, node in grid.asked if node == 1] == [0, 10.5]


@pytest.mark.parametrize(
    ("fault", "reason"), [("error", "no luck"), ("malformed", "missing ['w'], unexpected ['other']")]
)
def test_another_takes_the_place_of_an_answer_that_cannot_be_used(clock, fault, reason):
    """Two train at once. Node 1 fails for every version that it gets, and each buffer has its two answers."""
    found = trained(clock(Nodes([3, 1, 3, 3], faults={1: fault})), "fedbuff:2", 2, 6)
    failures = [failures for _, _, failures, _ in found]
    assert all(len(answers) == 2 and 1 not in dict(answers).values() for answers, *_ in found)
    assert any(failures)
    assert all(reason in text for failed in failures for text in failed.values())
    assert {partition for failed in failures for partition in failed} == {1}


def test_a_node_whose_answer_failed_waits_for_the_next_version(clock):
    """A buffer needs all three, and one fails once: the buffer ends with two, the next one has three."""
    grid = clock(Nodes([1, 1, 1], faults={1: "once"}))
    found = trained(grid, "fedbuff:3", 3, 2)
    assert [answers for answers, *_ in found] == [[(0, 0), (0, 2)], [(1, 0), (1, 1), (1, 2)]]
    assert [failures for _, _, failures, _ in found] == [{1: "no luck"}, {}]
    assert [x for *_, x in found] == pytest.approx([101 / 2, 101 / 2 + 111 / 3])


def test_answers_that_are_all_malformed_alike_are_the_apps_mistake(clock):
    grid = clock(Nodes([1, 2, 3], faults=dict.fromkeys(range(3), "malformed")))
    with pytest.raises(InconsistentMessageReplies, match="all 3 answers are refused for the same reason"):
        trained(grid, "fedbuff:2", 2, 1)


def test_a_node_that_joins_late_takes_part_from_then_on(clock):
    """Node 2 comes at 3.25, between two answers, when a place is free, and lands at 3.75."""
    grid = clock(Nodes([2, 2, 0.5], since={2: 3.25}))
    found = trained(grid, "fedbuff:2", 3, 3)
    assert [(answers, now) for answers, now, *_ in found] == [
        ([(0, 0), (0, 1)], 2),
        ([(1, 0), (1, 2)], 4),
        ([(1, 1), (2, 2)], 4.5),
    ]
    assert [when for when, node in grid.asked if node == 2] == [3.25, 4]


@pytest.mark.slow
@given(st.data())
@settings(max_examples=40)
def test_what_holds_of_all_buffers(data):
    """K different nodes at most, and K where nobody fails; at most M train; from versions that there were."""
    seconds = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    m, k, seed = (data.draw(st.integers(1, len(seconds))) for _ in range(3))
    fault = data.draw(st.sampled_from([None, "error", "malformed"]))
    faulty = data.draw(st.integers(0, len(seconds) - 1)) if fault and len(seconds) > 1 else None
    grid = Nodes(seconds, faults={} if faulty is None else {faulty: fault})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrivals, "time", SimpleNamespace(monotonic=lambda: grid.now, sleep=grid.sleep))
        try:
            found = trained(grid, f"fedbuff:{k}", m, 8, seed=seed)
        except InconsistentMessageReplies:
            assert fault == "malformed"
            return
    made = [0.0, *(now for _, now, *_ in found)]
    for current, (answers, now, failures, _) in enumerate(found):
        partitions = [partition for _, partition in answers]
        assert len(set(partitions)) == len(partitions) == min(k, len(seconds) - (faulty is not None))
        assert faulty not in partitions
        assert failures.keys() <= {faulty}
        for version, partition in answers:
            assert version <= current
            assert made[version] + seconds[partition] <= now
    assert made == sorted(made)
    assert grid.most <= m
    by_node = {node: [when for when, asked in grid.asked if asked == node] for node in range(len(seconds))}
    assert all(b - a >= seconds[node] for node, times in by_node.items() for a, b in pairwise(times))

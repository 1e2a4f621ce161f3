"""Asynchronous protocols: the schedule by hand, whole runs by an independent formula."""

import re
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from flwr.app import MessageType
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from fedbn_flower import Observer
from fedbn_flower.asynchronous.schedule import Schedule
from fedbn_flower.server.exchange import Exchange

from ...quick import some_quick
from ..records.helpers import bits, rows_of

PAGE = Path(__file__).parents[3] / "docs/how-to/asynchronous.md"
JOB = {"partition": "iid", "num_clients": 8, "client": "shared", "model": "linear", "devices": "phones"}
BUFFERED = {"protocol": "fedbuff:3", "concurrency": 5}


def schedule(seconds, concurrency, size, seed=0):
    return Schedule(seed, np.array(seconds, float), range(len(seconds)), concurrency, size)


def told(found, buffers):
    """The first buffers as (answers, seconds, outstanding versions)."""
    full = [found.buffer(number) for number in range(1, buffers + 1)]
    return [([tuple(answer) for answer in b.answers], b.seconds, set(b.outstanding)) for b in full]


def test_a_schedule_by_hand():
    """Of three clients of 2, 3 and 7 seconds who all train, two answers make a version.

    Client 0 lands at 2 and waits for version 1, which client 1 makes at 3. Both land again at 5 and 6. Client
    2 lands at 7 with version 0, when there is version 2, and makes version 3 with client 0 at 8.
    """
    assert told(schedule([2, 3, 7], 3, 2), 4) == [
        ([(0, 0), (0, 1)], 3, {0}),
        ([(1, 0), (1, 1)], 6, {0}),
        ([(0, 2), (2, 0)], 8, {2}),
        ([(2, 1), (3, 0)], 10, {3}),
    ]


def test_answers_of_one_moment_fill_buffers_by_partition_before_new_clients_begin():
    assert told(schedule([1, 1, 1, 1], 4, 2), 4) == [
        ([(0, 0), (0, 1)], 1, {0}),
        ([(0, 2), (0, 3)], 1, set()),
        ([(2, 0), (2, 1)], 2, {2}),
        ([(2, 2), (2, 3)], 2, set()),
    ]


def test_a_client_answers_once_in_a_buffer():
    """A single one trains at a time, so a buffer of all clients has each of them, from one version."""
    assert told(schedule([1, 2, 3], 1, 3), 2) == [
        ([(0, 0), (0, 1), (0, 2)], 6, set()),
        ([(1, 0), (1, 1), (1, 2)], 12, set()),
    ]


def test_a_client_that_is_fast_is_dispatched_again_while_another_trains():
    """Client 0 of a second answers for ten versions before client 1 of 10.5 seconds does."""
    found = told(schedule([1, 10.5], 2, 1), 12)
    assert [answers for answers, _, _ in found] == [*([(v, 0)] for v in range(10)), [(0, 1)], [(10, 0)]]
    assert [seconds for _, seconds, _ in found] == [*range(1, 11), 10.5, 11]
    assert [outstanding for _, _, outstanding in found[:9]] == [{0}] * 9


@pytest.mark.slow
@given(st.data())
def test_what_holds_of_every_schedule(data):
    """K different clients; at most M train; each takes its time, from the newest version there was."""
    seconds = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=9))
    m, k, seed = (data.draw(st.integers(1, len(seconds))) for _ in range(3))
    found = schedule(seconds, m, k, seed)
    full = [found.buffer(number) for number in range(1, 13)]
    made = [0.0, *(buffer.seconds for buffer in full)]
    known = {0}
    for current, buffer in enumerate(full):
        assert len({answer.partition for answer in buffer.answers}) == k
        assert len(buffer.outstanding) <= m
        assert {answer.version for answer in buffer.answers} | buffer.outstanding <= known | {current}
        known = set(buffer.outstanding)
        for version, partition in buffer.answers:
            assert made[version] + seconds[partition] <= made[current + 1]
            assert made[version + 1] + seconds[partition] >= made[current]
    assert made == sorted(made)
    again = schedule(seconds, m, k, seed)
    assert again.buffer(12) == full[-1]


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=9))
def test_a_buffer_of_all_clients_is_a_round(seconds):
    n, now = len(seconds), 0.0
    for number, (answers, ended, outstanding) in enumerate(told(schedule(seconds, n, n), 3)):
        now += max(seconds)
        assert (answers, ended, outstanding) == ([(number, i) for i in range(n)], now, set())


def test_who_begins_is_drawn_uniformly():
    first = [schedule([1] * 5, 1, 1, seed).buffer(1).answers[0].partition for seed in range(1000)]
    counts = np.bincount(first, minlength=5)
    assert np.abs(counts - 200).max() < 5 * sqrt(1000 * 0.2 * 0.8)


class Models(Observer):
    """The model after every round, by name."""

    def __init__(self):
        self.after = []

    def on_round(self, result):
        self.after.append({name: array.numpy() for name, array in result.arrays.items()})


@pytest.fixture
def exchanged(monkeypatch):
    """By round, what clients got and what they sent in training, by partition."""
    real, found = Exchange.answers, []

    def answers(self, phase, messages, *more):
        messages = list(messages)
        replies = list(real(self, phase, messages, *more))
        if phase == MessageType.TRAIN:
            ids = {message.metadata.message_id: message for message in messages}
            found.append({})
            for reply in replies:
                asked = ids[reply.metadata.reply_to_message_id]
                both = (message.content.array_records["arrays"] for message in (asked, reply))
                partition = self.grid.partition_of_node(asked.metadata.dst_node_id)
                found[-1][partition] = [{n: a.numpy() for n, a in arrays.items()} for arrays in both]
        return iter(replies)

    monkeypatch.setattr(Exchange, "answers", answers)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "keys",
    [BUFFERED, BUFFERED | {"compress": "topk:0.2"}, {"protocol": "fedasync:hinge:1:1", "concurrency": 5}],
)
def test_a_run_is_the_papers_equations_over_what_clients_sent(run, exchanged, keys):
    models = Models()
    result = run(**JOB | keys, strategy="fedavg", rounds=7, run_dir="run", observers=[models])
    staleness = [{} for _ in range(7)]
    for row in rows_of(result.folder, "clients.csv"):
        if row["phase"] == "train":
            staleness[int(row["round"]) - 1][int(row["partition"])] = int(row["staleness"])
        else:
            assert not row["staleness"]
    for t, (answers, stale, row) in enumerate(zip(exchanged, staleness, rows_of(result.folder), strict=True)):
        assert answers.keys() == stale.keys()
        assert float(row["staleness-mean"]) == sum(stale.values()) / len(stale)
        assert int(row["staleness-max"]) == max(stale.values())
        if t == 0:
            assert set(stale.values()) == {0}
            continue
        x, steps = models.after[t - 1], []
        for partition, (got, sent) in answers.items():
            s = stale[partition]
            if s < t:  # version 0 is no round's
                assert all((got[name] == models.after[t - 1 - s][name]).all() for name in x)
            if "fedbuff" in keys["protocol"]:
                steps.append({name: (sent[name] - got[name]) / sqrt(1 + s) for name in x})
            else:
                factor = 0.6 if s <= 1 else 0.6 / (s - 1 + 1)
                steps.append({name: factor * (sent[name] - x[name]) for name in x})
        for name, entry in models.after[t].items():
            expected = x[name] + sum(step[name] for step in steps) / len(steps)
            np.testing.assert_allclose(entry, expected, atol=1e-6)
    assert max(max(stale.values()) for stale in staleness) >= 2


def test_a_resumed_run_has_the_versions_that_clients_still_train(run):
    keys = JOB | BUFFERED
    whole = run(**keys, rounds=5, run_dir="whole")
    run(**keys, rounds=3, run_dir="resumed")
    resumed = run(**keys, rounds=5, resume="resumed")
    assert any(int(row["staleness-max"]) > 1 for row in rows_of(whole.folder)[3:])
    assert bits(resumed) == bits(whole)


@pytest.mark.slow
def test_clients_in_lockstep_follow_their_versions(run):
    """To rounding the same as one by one, as in the rounds."""
    keys = JOB | {"num_clients": 40, "protocol": "fedbuff:20", "concurrency": 30, "rounds": 3}
    together = run(**keys, run_dir="together")
    apart = run(**keys, run_dir="apart", fast="off")
    one, other = (load_file(result.folder / "model.safetensors") for result in (together, apart))
    for name, entry in one.items():
        np.testing.assert_allclose(entry, other[name], atol=1e-4)
    assert bits(together) != bits(apart)  # as many were trained in lockstep


TABLE = re.findall(r"^\| `(--.*)` \| (.*) \| (.*) % \|(.*)\|$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "seconds", "accuracy", "staleness"), some_quick(TABLE, {1}))
def test_the_table_of_the_page(run, flags, seconds, accuracy, staleness):
    """Rows of docs/how-to/asynchronous.md: keys, simulated seconds, accuracy and the greatest staleness."""
    assert len(TABLE) == 3
    job = JOB | {"num_clients": 40, "strategy": "fedavg", "local_epochs": 2, "batch_size": 32}
    words = flags.replace("--", "").replace("-", "_").split()
    result = run(**job | dict(zip(words[::2], words[1::2], strict=True)), run_dir="run")
    assert result.summary["simulated-seconds"] == pytest.approx(float(seconds), abs=0.05)
    assert result.summary["global"]["accuracy"] == pytest.approx(float(accuracy) / 100, abs=0.01)
    found = [int(row["staleness-max"]) for row in rows_of(result.folder) if "staleness-max" in row]
    assert max(found, default=-1) == int(staleness.strip() or -1)
    assert sum(int(row["replies"]) for row in rows_of(result.folder)) == 120


@pytest.mark.slow
def test_clients_that_are_held_out_do_not_train(run):
    """Of six clients two are held out, by seed 0: clients 0 and 4."""
    keys = {**JOB, "num_clients": 6, "holdout_clients": 2, "protocol": "fedbuff:2", "concurrency": 4}
    result = run(**keys, rounds=6)
    trained = {row["partition"] for row in rows_of(result.folder, "clients.csv") if row["phase"] == "train"}
    assert trained == {"1", "2", "3", "5"}

"""Sites that number classes or tokens by names of their own: compared before the first round."""

import logging
import re

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict
from PIL import Image

from fedbn_flower.core.errors import RunFailed
from fedbn_flower.job.site_facts import digest_of
from fedbn_flower.runtime.grid import partition_of
from fedbn_flower.server.federation import Federation
from fedbn_flower.server.questions import _received
from strategies import ReplyRefused

from ..data.test_own_data import Sites

RNG = np.random.default_rng(0)


@pytest.fixture
def run(configured, tmp_path):
    """Runs over sites with pictures of these classes, in folders; returns the types of all messages."""

    def go(*sites, outputs=2, work_of=lambda grid: grid, **keys):
        nodes = []
        for number, names in enumerate(sites):
            folder = tmp_path / f"site-{number}"
            for name in names:
                for i in range(10):
                    path = folder / f"{name}/{i}.png"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(RNG.integers(0, 256, (8, 8), np.uint8)).save(path)
            cache = str(tmp_path / "cache")
            nodes.append({"data-path": str(folder), "partition-id": number, "cache-dir": cache})
        config = configured(dataset=f"shape:1x8x8:{outputs}", **{"client": "shared", "rounds": 1, **keys})
        grid, asked = Sites(config, nodes), []
        work = grid.work
        grid.work = lambda messages, timeout: asked.extend(messages) or work(messages, timeout)
        go.asked = asked
        Federation(config).run(work_of(grid), [])

    return go


FOUR = ["ape", "bat", "cat", "dog"]


@pytest.mark.parametrize(
    ("sites", "outputs", "lists"),
    [
        ((FOUR[:2], ["bat", "cow"]), 2, "'ape', 'bat' .* 'bat', 'cow'"),
        ((FOUR, FOUR, ["ape", "bat", "cat", "cow"]), 4, "'dog' and at site 2 'ape', 'bat', 'cat', 'cow'"),
    ],
)
def test_other_names_are_refused_before_anything_trains(run, sites, outputs, lists):
    with pytest.raises(RunFailed, match=rf"^data-path: the classes are at site 0 .*{lists}; expected"):
        run(*sites, outputs=outputs, num_clients=len(sites))
    assert {message.metadata.message_type for message in run.asked} == {"query.names"}


def test_the_same_names_train_and_each_sites_log_has_them_beside_the_numbers(run, caplog):
    with caplog.at_level(logging.INFO, "flwr.fedbn"):
        run(["Benign", "malignant"], ["benign", "malignant "], rounds=2)
    assert "train" in {message.metadata.message_type for message in run.asked}
    assert "classes here: 0 'Benign', 1 'malignant'" in caplog.text
    assert "have no names" not in caplog.text
    assert caplog.messages.count("examples: 16 to train on, 4 to test on") == 2  # once a site, not a round


def test_a_site_that_is_held_out_is_compared(run):
    with pytest.raises(RunFailed, match="^data-path: the classes are at site 0 .* at site 2 'normal', 'path"):
        run(FOUR[:2], FOUR[:2], ["normal", "pathologic"], num_clients=3, leave_one_site_out=True, left_out=2)


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ({}, "'normal', 'pathologic'"),
        (
            {"secagg": "on", "strategy": "fedavg", "clip_update_norm": 1.0, "max_num_examples": 100},
            "'[0-9a-f]{64}'",
        ),
    ],
)
def test_a_site_that_came_later_costs_only_itself(run, caplog, keys, shown):
    """It does not answer before the first round, as one that is not there."""

    def late(grid):
        work = grid.work
        grid.work = lambda messages, timeout: work([m for m in messages if not is_early(m)], timeout)
        return grid

    def is_early(message):
        return message.metadata.message_type == "query.names" and partition_of(message) == 3

    run(*[FOUR[:2]] * 3, ["normal", "pathologic"], num_clients=4, work_of=late, **keys)
    lines = [line for line in caplog.messages if "partition 3 dropped" in line]
    assert len(lines) == 1, lines
    assert re.search(f"data-path: the classes are {shown} here; expected those of the sites that", lines[0])


def test_with_privacy_a_digest_is_compared(run):
    private = {"dp": "example", "dp_noise": 1.0, "dp_delta": 0.1, "client": "shared", "model": "linear"}
    with pytest.raises(RunFailed, match="^data-path: the classes are at site 0 '[0-9a-f]{64}' and at site"):
        run(["abnormal", "normal"], ["normal", "pathologic"], **private)


def test_one_name_is_not_two():
    names = [
        {"classes": ["a", "b"]},
        {"classes": ["a b"]},
        {"classes": ["b", "a"]},
        {"tokens": ["a", "b"]},
        {},
    ]
    assert len({digest_of(one) for one in names}) == len(names)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}".ljust(2**20 + 1), f"'names' has {2**20 + 1} characters, at most {2**20}"),
        ("[" * 100_000, "no JSON (RecursionError)"),
        ("ape", "no JSON (JSONDecodeError)"),
        *((text, "no lists of names") for text in ('["ape"]', '{"of": "ape"}', '{"of": ["a", 1]}')),
    ],
)
def test_what_is_no_names_is_not_read(text, why):
    with pytest.raises(ReplyRefused, match=re.escape(f"names: {why}")):
        _received(RecordDict({"names": ConfigRecord({"names": text})}))
    assert _received(RecordDict({"names": ConfigRecord({"names": "{}".ljust(2**20)})})) == {}

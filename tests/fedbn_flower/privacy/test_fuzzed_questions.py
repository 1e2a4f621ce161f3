"""A server that sends any configuration and any message to a site whose owner has set bounds."""

import json
import random

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedbn_flower.core import private
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.runtime.grid import RUN_ID
from fedbn_flower.site.adapter import app
from fedbn_flower.site.ledger import path_of_ledger
from strategies.messages.npy import encoded

from .runs import of_local

BOUNDS = {"dp-max-epsilon": 6.0, "dp-max-delta": 1e-5, "dp-min-noise": 4.0, "dp-max-clip": 2.0}
KEYS = {
    "dp": ["none", "client", "example", "local", "", "LOCAL", 3],
    "dp-noise": [0.0, 0.5, 4.0, 8.0, 50.0, -1.0, "8"],
    "dp-epsilon": [0.0, 0.5, 8.0, 1e6],
    "dp-delta": [0.0, 1e-9, 1e-5, 1e-3, 0.9],
    "dp-clip": [0.1, 1.0, 2.0, 3.0, "adaptive"],
    "dp-seed": [-1, 0, 7],
    "dp-metrics": [0.0, 1.0, 1e9],
    "eval-model": ["aggregated", "local"],
    "memory-name": ["default", "another", "../up", "a\0b"],
    "weighting": ["auto", "num-examples", "uniform"],
    "client": ["shared", "fedbn", "nobody"],
}
KINDS = ["train", "evaluate", "query.counts", "query.moments", "query.sizes", "query.complete"]
ASKED = {
    "server-round": [1, 2, -1, 0, "1", 2**62],
    "eval-splits": ["test", "train", "test,train", "", "val"],
    "run": ["20260101T000000000000-0000000a", "20260102T000000000000-0000000b", "x", ""],
    "client-lr": [0.1, 1e30, float("nan"), "0.1"],
    "dp-noise": [0.0, 4.0, 100.0, "much"],
    "fine-tune": [0, 3],
}


def question(chance, honest):
    """A message, and the configuration of the run that it is of; both honest but for some entries."""
    kind, config = chance.choice(KINDS), dict(honest.to_user_config())
    for key in chance.sample(sorted(KEYS), chance.choice([0, 1, 1, 2, 4])):
        config[key] = chance.choice(KEYS[key])
    asked = {"server-round": 1, "checkpoint-round": 0, "client-lr": 0.1}
    asked |= {"run": ASKED["run"][0], "eval-splits": "test"}
    for key in chance.sample(sorted(ASKED), chance.choice([0, 1, 2])):
        asked[key] = chance.choice(ASKED[key])
    inputs = inputs_of(honest)
    model = {name: encoded(inputs.initial().entries[name]) for name in inputs.split.shared}
    content = RecordDict({"arrays": ArrayRecord(model), "config": ConfigRecord(asked)})
    if chance.random() < 0.1:
        del content[chance.choice(["arrays", "config"])]
    return Message(content, 2, kind), config


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_server_asks_the_bounds_hold(configured, tmp_path, seed):
    """A run beyond the bounds gets no answer with content; each answer is paid for, up to the budget."""
    chance, honest = random.Random(seed), of_local(configured, dp_seed=-1, dp_noise=8.0, dp_delta=1e-5)
    ledger, answered, refused = path_of_ledger(tmp_path, "client-0"), 0, 0
    node_config = {"partition-id": 0, "state-dir": str(tmp_path), **BOUNDS}
    private.identify_process(RUN_ID)
    for number in range(150):
        message, config = question(chance, honest)
        kind, lines = message.metadata.message_type, ledger.exists() and len(ledger.read_text().splitlines())
        private.set_message_id(message, str(number))
        try:
            reply = app(message, Context(RUN_ID, 2, node_config, RecordDict(), config))
        except Exception:  # Flower answers with an error
            refused += 1
            continue
        if reply.has_error():
            refused += 1
            assert "\n" not in reply.error.reason
            continue
        if kind == "query.complete":
            assert not reply.content
            continue
        answered += 1
        assert config["dp"] in ("local", "example")
        assert config["dp-seed"] == -1
        assert float(config["dp-delta"]) <= 1e-5
        assert float(config["dp-clip"]) <= 2
        if kind == "query.sizes":
            assert config["dp"] == "example"
            continue
        assert kind in ("train", "evaluate")
        charges = [json.loads(line) for line in ledger.read_text().splitlines()]
        assert len(charges) > (lines or 0)
        twice = config["dp"] == "local" and kind == "train"  # two updates differ by 2 C
        assert charges[-1]["noise"] * (1 + twice) >= 4
        assert charges[-1]["epsilon"] <= 6
        if kind == "evaluate":
            assert float(config["dp-metrics"]) > 0
        assert dict(reply.content["metrics"]).keys() <= {
            "num-examples", "local-steps", "local-norm", "loss", "accuracy", "eval-examples", "test-examples"
        }  # fmt: skip
    assert answered >= 3
    assert refused > answered

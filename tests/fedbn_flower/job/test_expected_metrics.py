"""A client that lies in what it reports beside its model costs itself a round, and the run nothing."""

import json
import math
import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict

from clients import CLIENTS, METRICS, Classification, FedAvgClient, Predicted
from fedbn_flower.job.checks.expected_metrics import expected_metrics
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.grid import InlineGrid, partition_of
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from strategies import ReplyRefused

from ..records.helpers import rows_of

F1 = {"f1": METRICS["f1"](Predicted("classes", 10))}
EXPECTED = expected_metrics(Classification().with_metrics(F1), 10, most=500)
COUNTS = {"class-hits": [18] * 10, "class-examples": [36] * 10}
HONEST = {"num-examples": 121, "loss": 1.0, "accuracy": 0.5, "f1": 0.5, "eval-examples": 360} | COUNTS
CONFUSION = np.diag([36] * 10)


def read(metrics, states=None):
    states = {"confusion-matrix": CONFUSION} if states is None else states
    record = ArrayRecord({name: Array(state) for name, state in states.items()})
    EXPECTED.read(RecordDict({"states": record}), MetricRecord(HONEST | metrics))


METRIC_LIES = [
    ({"train-loss": math.nan}, "'train-loss' is nan"),
    ({"train-accuracy": 1e6}, "'train-accuracy' is 1000000.0, not a number in [0, 1"),
    *(
        ({name: 1}, f"the metric name {name!r} is reserved")
        for name in ("round", "partition", "phase", "train-seconds")
    ),
    ({"global-accuracy": 1.0}, "the metric name 'global-accuracy' is reserved"),
    ({f"m{i}": i for i in range(2000)}, "2000 further metrics, at most 100"),
    ({"many": [1.0] * 20_000}, "20000 numbers in lists, at most 10000"),
    ({"loss": -2.5}, "'loss' is -2.5, not a number"),
    ({"train-examples": math.inf}, "'train-examples' is inf"),
    ({"class-hits": [1], "class-examples": [1]}, "'class-hits' is a list of 1, not 10 whole numbers"),
    ({"num-examples": 0.5}, "'num-examples' is 0.5, not a whole number in [1, 500]"),
    ({"num-examples": 2**53}, "'num-examples' is 9007199254740992, not a whole number in [1, 500]"),
    ({"eval-examples": 501}, "'eval-examples' is 501, not a whole number in [0, 500]"),
    ({"test-examples": 501}, "'test-examples' is 501, not a whole number in [0, 500]"),
    ({"class-hits": [37] * 10}, "'class-hits' is above 'class-examples'"),
    ({"class-examples": [40] * 10}, "'class-examples' sums to 400, and 'eval-examples' is 360"),
]
STATE_LIES = [
    ({"confusion-matrix": CONFUSION[:-1]}, "confusion-matrix: shape (9, 10), expected (10, 10)"),
    ({"confusion-matrix": CONFUSION / 1}, "confusion-matrix: dtype float64, expected int64"),
    ({"confusion-matrix": CONFUSION - 1}, "confusion-matrix: counts from -1 to"),
    ({"confusion-matrix": CONFUSION + 2**50}, "not in [0, 2^43]"),
    ({"confusion-matrix": 10 * CONFUSION}, "confusion-matrix: it is of 3600 predictions, not of 360"),
    ({"other": CONFUSION}, "states: unexpected ['other']"),
    ({}, "the state 'confusion-matrix' of the run's metrics is missing"),
]


@pytest.mark.parametrize(
    ("metrics", "states", "reason"),
    [*((lie, None, reason) for lie, reason in METRIC_LIES), *(({}, *lie) for lie in STATE_LIES)],
)
def test_what_a_client_may_not_report(metrics, states, reason):
    with pytest.raises(ReplyRefused, match=re.escape(reason)):
        read(metrics, states)


def test_a_training_loss_may_be_negative():
    """An objective adds terms of any sign to it."""
    read({"train-loss": -2.5})


def lying(phase, lie):
    """A client of which partition 1 changes the metrics of its training or evaluation after round 1."""

    class Lying(FedAvgClient):
        def told(self, what, metrics, config):
            lies = what == phase and self.task.seed[1] == 1 and config["server-round"] > 1
            return lie(metrics) if lies else metrics

        def fit(self, parameters, config):
            arrays, count, metrics = super().fit(parameters, config)
            return arrays, count, self.told("train", metrics, config)

        def evaluate(self, parameters, config):
            loss, count, metrics = super().evaluate(parameters, config)
            return loss, count, self.told("evaluate", metrics, config)

    return Lying


def fails(metrics):
    raise RuntimeError("out of luck")


def outcome(folder):
    """What the folder of a run says but for times, and for the bytes of what was refused."""
    summary, metrics = json.loads((folder / "summary.json").read_text()), rows_of(folder)
    for output in (summary, *metrics):
        for name in [name for name in output if "second" in name or name == "bytes-received"]:
            del output[name]
    return (folder / "model.safetensors").read_bytes(), summary, metrics, rows_of(folder, "clients.csv")


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "name"), [("train", "train-accuracy"), ("evaluate", "accuracy")])
def test_a_run_with_a_liar_is_the_run_in_which_it_fails(finished, monkeypatch, tmp_path, phase, name):
    keys = {"client": "lying", "weighting": "uniform", "partition": "iid", "num_clients": 3}
    for folder, lie in (("lies", lambda metrics: metrics | {name: 1e6}), ("fails", fails)):
        monkeypatch.setitem(CLIENTS, "lying", lying(phase, lie))
        finished(tmp_path / folder, **keys)
    assert outcome(tmp_path / "lies") == outcome(tmp_path / "fails")
    (refused,) = rows_of(tmp_path / "lies", "failures.csv")
    assert (refused["round"], refused["phase"], refused["partition"]) == ("2", phase, "1")
    assert f"{name!r} is 1000000.0" in refused["reason"]


def sends(name, entries):
    """Changes arrays of a record, where the client is the first."""

    class Sends(FedAvgClient):
        def fit(self, parameters, config):
            update = super().fit(parameters, config)
            if self.task.seed[1] == 0:
                update.records[name] = {k: entries.get(k, array) for k, array in update.records[name].items()}
            return update

    return Sends


class Fails(FedAvgClient):
    def fit(self, parameters, config):
        if self.task.seed[1] == 0:
            fails({})
        return super().fit(parameters, config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "record", "entries"),
    [
        ("fedsat", "struggle", {"scores": np.zeros(3, np.float32)}),
        ("fedsat", "struggle", {"scores": np.zeros(5000, np.float32)}),
        ("fedproto", "prototypes", {"sums": np.zeros((10, 3), np.float32)}),
        ("fedproto", "prototypes", {"shares": np.full(10, 1e-38, np.float32)}),
    ],
)
def test_the_first_answer_does_not_decide_for_the_others(
    configured, monkeypatch, tmp_path, rule, record, entries
):
    """The first of three lies in every round: the model is that of a run in which it fails."""
    models = []
    for client in (sends(record, entries), Fails):
        monkeypatch.setitem(CLIENTS, "lying", client)
        config = configured(
            client="lying", strategy=rule, objective=rule, partition="iid", num_clients=3, fraction_evaluate=0
        )
        folder = tmp_path / client.__name__
        assert simulate(Federation(config), folder, None).as_json()["failures"] == 2
        models.append((folder / "model.safetensors").read_bytes())
    assert models[0] == models[1]


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        ({"local_epochs": 3, "batch_size": 16}, 3),
        ({"client": "fedrep", "head_epochs": 7, "local_epochs": 2}, 7),
        ({"client": "fedrep+fedbn", "head_epochs": 1, "local_epochs": 2, "batch_size": 0}, 2),
        ({"client": "tests.fedbn_flower.config.own_algorithms:Partly"}, None),
    ],
)
def test_fednova_knows_how_many_passes_clients_make_but_for_those_of_ones_own(configured, keys, steps):
    config = configured(strategy="fednova", **keys)
    rule = Federation(config).strategy
    assert rule.local_epochs == steps
    assert not steps or rule.batch_size == config.batch_size


def test_clients_that_never_train_are_checked_too(configured, monkeypatch, tmp_path):
    class New(FedAvgClient):
        def evaluate(self, parameters, config):
            loss, count, metrics = super().evaluate(parameters, config)
            return loss, count, metrics | ({"accuracy": 7.0} if self.task.seed[1] == held_out else {})

    monkeypatch.setitem(CLIENTS, "new", New)
    config = configured(client="new", partition="iid", num_clients=3, rounds=1, holdout_clients=1)
    (held_out,) = Federation(config).strategy.node_participation.held_out_clients
    summary = simulate(Federation(config), tmp_path / "run", None).as_json()
    assert summary["new-clients"]["clients"] == {}
    assert "'accuracy' is 7.0, not a number in [0, 1" in (tmp_path / "run" / "failures.csv").read_text()


class Hostile(InlineGrid):
    """The second node answers with an error whose text is a formula in red."""

    def work(self, messages, timeout):
        for message, reply in zip(messages, super().work(messages, timeout), strict=True):
            training = message.metadata.message_type == "train"
            if training and partition_of(message) == 1:
                yield Message(Error(1, "\x1b[31m=1+1\x1b[0m"), reply_to=message)
            else:
                yield reply


def test_a_reason_is_text_to_a_terminal_and_to_a_spreadsheet(configured, tmp_path, capfd):
    config = configured(partition="iid", num_clients=2, rounds=1)
    federation = Federation(config)
    results = RunFolder(tmp_path, federation)
    federation.run(Hostile(2, config.to_user_config()), [results])
    results.finish()
    assert (tmp_path / "failures.csv").read_text() == "round,phase,partition,reason\n1,train,1,'=1+1\n"
    assert "\x1b[31m=1+1" not in "".join(capfd.readouterr())


def test_the_cap_is_of_characters_and_pixels_where_these_are_predicted(configured):
    text = {"dataset": "shape:80:97:characters", "model": "char-lstm-small", "client": "shared"}
    masks = {"dataset": "shape:1x8x8:3:masks", "model": "unet", "client": "shared"}
    for keys, most in ((text, 80 * 7), (masks, 64 * 7), ({"dataset": "shape:1x8x8:10"}, 7)):
        expected = Federation(configured(**keys, max_num_examples=7)).strategy.expected_metrics
        assert expected.ranges["eval-examples"].high == most
    assert Federation(configured()).strategy.expected_metrics.ranges["eval-examples"].high == 2**53

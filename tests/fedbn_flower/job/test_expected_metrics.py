"""A client that lies in what it reports beside its model costs itself a round, and the run nothing."""

import csv
import json
import math

import numpy as np
import pytest
from flwr.app import Error, Message

from clients import CLIENTS, FedAvgClient
from fedbn_flower.config.making import run_config
from fedbn_flower.results.run_folder import RunFolder
from fedbn_flower.runtime.grid import partition_of
from fedbn_flower.runtime.inline import InlineGrid
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation


def strictly(text):
    """JSON as others read it: they know no NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def lying(phase, lie):
    """A client of which partition 1 changes what it says of its training or evaluation after round 1: (its
    number of examples, its metrics) by ``lie``, which may raise."""

    class Lying(FedAvgClient):
        def lies(self, what, config):
            return what == phase and self.task.seed[1] == 1 and config["server-round"] > 1

        def fit(self, parameters, config):
            arrays, count, metrics = super().fit(parameters, config)
            return (arrays, *(lie(count, metrics) if self.lies("train", config) else (count, metrics)))

        def evaluate(self, parameters, config):
            loss, count, metrics = super().evaluate(parameters, config)
            if self.lies("evaluate", config):
                count, metrics = lie(count, {"loss": loss, **metrics})
                loss = metrics.pop("loss", loss)
            return loss, count, metrics

    return Lying


def fails(count, metrics):
    raise RuntimeError("out of luck")


def reports(**output):
    """Further metrics, with _ for -; or others in the place of its own."""
    return lambda count, metrics: (count, metrics | {name.replace("_", "-"): v for name, v in output.items()})


def counts(value):
    return lambda count, metrics: (value, metrics)


TRAIN_LIES = {
    "a figure that is not finite": reports(train_loss=math.nan),
    "a figure out of its range": reports(train_accuracy=1e6),
    "the name of a column": reports(round=7),
    "another": reports(partition=0),
    "the name of a cost": reports(train_seconds=3.0),
    "half an example": counts(0.5),
    "too many names": lambda count, metrics: (count, metrics | {f"m{i}": i for i in range(2000)}),
    "a long name": reports(**{"x" * 10_000: 1}),
    "a long list": reports(many=[1.0] * 20_000),
    "a formula's and a terminal's name": reports(**{"=1\x1b[31m": 1}),
}
EVALUATE_LIES = {
    "no number of examples": counts(math.nan),
    "a list for a figure": reports(accuracy=[1.0]),
    "a loss as a list": reports(loss=[1.0]),
    "an accuracy that patience would follow": reports(accuracy=1e6),
    "a loss below any": reports(loss=-1e30),
    "examples without a number": reports(train_examples=math.nan),
    "examples without end": reports(train_examples=math.inf),
    "counts of too few classes": reports(class_hits=[1], class_examples=[1]),
    "a phase": reports(phase=1),
}


def outcome(cache_dir, folder, phase, lie, **keys):
    """What the folder of a run says but for times, and for the bytes of what was refused."""
    given = {"client": "lying", "weighting": "uniform", "partition": "iid", "num-clients": 3, "rounds": 2}
    given |= {"local-epochs": 1, "batch-size": 128}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CLIENTS, "lying", lying(phase, lie))
        config = run_config({**given, "cache-dir": str(cache_dir), "backend": "inline", **keys})
        simulate(Federation(config), folder, None)
    summary = strictly((folder / "summary.json").read_text())
    with (folder / "clients.csv").open() as clients, (folder / "metrics.csv").open() as metrics:
        rows = [list(csv.DictReader(file)) for file in (clients, metrics)]
    for output in (summary, *rows[1]):
        for name in [name for name in output if "second" in name or name == "bytes-received"]:
            del output[name]
    return (folder / "model.safetensors").read_bytes(), summary, rows


@pytest.fixture
def few_draws():
    """All draws of intervals, as in the runs of a module that others are compared with."""


@pytest.fixture(scope="module")
def failed(cache_dir, tmp_path_factory, pictures_never_drawn):
    """The same of a run in which partition 1 fails in the phase of that name, in round 2."""
    folder = tmp_path_factory.mktemp("failed")
    return {phase: outcome(cache_dir, folder / phase, phase, fails) for phase in ("train", "evaluate")}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("phase", "lie"),
    [
        pytest.param(phase, lie, id=name)
        for phase, lies in (("train", TRAIN_LIES), ("evaluate", EVALUATE_LIES))
        for name, lie in lies.items()
    ],
)
def test_a_run_with_a_liar_is_the_run_in_which_it_fails(cache_dir, tmp_path, failed, phase, lie):
    assert outcome(cache_dir, tmp_path, phase, lie) == failed[phase]
    with (tmp_path / "failures.csv").open() as file:
        refused = list(csv.DictReader(file))
    assert [(r["round"], r["phase"], r["partition"]) for r in refused] == [("2", phase, "1")]
    assert all(r["reason"].isprintable() and len(r["reason"]) <= 500 for r in refused)


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
            fails(0, {})
        return super().fit(parameters, config)


@pytest.mark.sampled(2)
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
    ],
)
def test_fednova_knows_how_many_passes_clients_make(configured, keys, steps):
    config = configured(strategy="fednova", **keys)
    rule = Federation(config).strategy
    assert (rule.local_epochs, rule.batch_size) == (steps, config.batch_size)


def test_fednova_does_not_know_what_clients_of_ones_own_do(configured):
    config = configured(strategy="fednova", client="tests.fedbn_flower.config.own_algorithms:Partly")
    assert Federation(config).strategy.local_epochs is None


def test_patience_does_not_follow_a_lie(cache_dir, tmp_path):
    """The greatest accuracy of three rounds is an honest one; the lie of round 2 would be the best."""
    keys = {"patience": 5, "rounds": 3, "val-fraction": 0.2, "client-lr": 0.05}
    lie = EVALUATE_LIES["an accuracy that patience would follow"]
    lied = outcome(cache_dir, tmp_path / "lie", "evaluate", lie, **keys)
    assert lied == outcome(cache_dir, tmp_path / "failure", "evaluate", fails, **keys)
    assert lied[1]["best-round"] == 3


def test_clients_that_never_train_are_checked_too(configured, monkeypatch, tmp_path):
    class New(FedAvgClient):
        def evaluate(self, parameters, config):
            loss, count, metrics = super().evaluate(parameters, config)
            return loss, count, metrics | ({"accuracy": 7.0} if self.task.seed[1] == held_out else {})

    monkeypatch.setitem(CLIENTS, "new", New)
    config = configured(client="new", partition="iid", num_clients=3, rounds=1, holdout_clients=1)
    (held_out,) = Federation(config).strategy.node_participation.held_out_clients
    simulate(Federation(config), tmp_path / "run", None)
    assert strictly((tmp_path / "run" / "summary.json").read_text())["new-clients"]["clients"] == {}
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


@pytest.mark.parametrize(
    ("phase", "lie", "failures"),
    [("train", reports(**{"train-loss": -2.5}), 0), ("evaluate", reports(loss=-2.5), 1)],
)
def test_a_training_loss_may_be_negative(cache_dir, tmp_path, phase, lie, failures):
    """An objective adds terms of any sign to it; no loss of held-out examples is below 0."""
    _, summary, (clients, _) = outcome(cache_dir, tmp_path, phase, lie)
    assert summary["failures"] == failures
    told = {r["train-loss"] for r in clients if (r["round"], r["partition"], r["phase"]) == ("2", "1", phase)}
    assert told == ({"-2.5"} if phase == "train" else set())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (reports(eval_examples=2**53), "'eval-examples' is 9007199254740992, not a whole number in [0, 500]"),
        (reports(test_examples=501), "'test-examples' is 501, not a whole number in [0, 500]"),
        (counts(2**53), "'num-examples' is 9007199254740992, not a whole number in [1, 500]"),
        (reports(class_hits=[9] * 10, class_examples=[8] * 10), "'class-hits' is above 'class-examples'"),
        (
            reports(class_hits=[0] * 10, class_examples=[40] * 10),
            "'class-examples' sums to 400, and 'eval-examples' is 360",
        ),
    ],
)
def test_a_client_counts_no_more_examples_than_it_has(cache_dir, tmp_path, lie, reason):
    """The whole test set of 360 is the server's own, and more than `max-num-examples` would be too much."""
    keys = {"max-num-examples": 500, "weighting": "num-examples", "rounds": 2}
    _, summary, _ = outcome(cache_dir, tmp_path, "evaluate", lie, **keys)
    assert reason in (tmp_path / "failures.csv").read_text()
    assert list(summary["clients"]) == ["0", "2"]


def test_the_cap_is_of_characters_and_pixels_where_these_are_predicted(configured):
    text = {"dataset": "shape:80:97:characters", "model": "char-lstm-small", "client": "shared"}
    masks = {"dataset": "shape:1x8x8:3:masks", "model": "unet", "client": "shared"}
    for keys, most in ((text, 80 * 7), (masks, 64 * 7), ({"dataset": "shape:1x8x8:10"}, 7)):
        expected = Federation(configured(**keys, max_num_examples=7)).strategy.expected_metrics
        assert expected.ranges["eval-examples"].high == most
    assert Federation(configured()).strategy.expected_metrics.ranges["eval-examples"].high == 2**53

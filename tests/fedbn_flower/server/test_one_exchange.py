"""Clients that evaluate a round's model with the next round's training: the same bits, fewer exchanges."""

import inspect
import json
import logging
import traceback
from itertools import product

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from safetensors.numpy import load_file

from fedbn_flower.clients import FedAvgClient
from fedbn_flower.core.errors import RunFailed, UserError
from fedbn_flower.core.private import set_message_id
from fedbn_flower.extensions import built_in
from fedbn_flower.results.round_tables import RoundTables
from fedbn_flower.runtime.grid import InlineGrid, partition_of
from fedbn_flower.server.federation import Federation
from fedbn_flower.server.one_exchange import REASONS, JointEvaluation
from fedbn_flower.strategies import FedAvg

from ..records.helpers import rows_of
from ..supernodes import PowerCut, SuperNodes, run_app

NOT_OF_THE_MODEL = {
    "seconds", "train-seconds", "evaluate-seconds", "server-seconds", "bytes-sent", "bytes-received"
}  # fmt: skip
OF_THE_CLOCK = {"seconds", "seconds-per-round", "seconds-split", "client-updates-per-second"}
FOUR = {"num_clients": 4, "partition": "dirichlet:1", "rounds": 3}


class Nodes(SuperNodes):
    """SuperNodes that note what they are asked, an entry for each exchange: the phases of its messages."""

    def __init__(self, config, state_dir, cut=None, position=1):
        super().__init__(config, state_dir, cut, position)
        self.exchanges, self.both = [], []

    def work(self, messages, timeout):
        phases = [message.metadata.message_type for message in messages]
        if {"train", "evaluate"} & set(phases):
            self.exchanges.append(sorted(set(phases)))
            self.both += ["evaluation" in message.content.config_records for message in messages]
        return super().work(messages, timeout)


def outcome(folder):
    """What a run found, of all of its files: without seconds and bytes."""

    def rows(name):
        return [{k: v for k, v in row.items() if k not in NOT_OF_THE_MODEL} for row in rows_of(folder, name)]

    summary = json.loads((folder / "summary.json").read_text())
    costs = summary.get("costs-to-target", {})
    for reached in costs:
        costs[reached] = costs[reached] is not None
    left = {k: v for k, v in summary.items() if k not in OF_THE_CLOCK and not k.startswith("bytes")}
    model = {name: array.tobytes() for name, array in load_file(folder / "model.safetensors").items()}
    return {
        "metrics": rows("metrics.csv"),
        "clients": rows("clients.csv"),
        "failures": rows("failures.csv"),
        "summary": left,
        "model": model,
    }


def memories(state):
    """The newest memory of each client, by its name and round."""
    return {path.name[:8] + path.name[39:]: load_bits(path) for path in sorted(state.rglob("*.safetensors"))}


def load_bits(path):
    return {name: array.tobytes() for name, array in load_file(path).items()}


@pytest.fixture
def done(configured, tmp_path):
    """Runs a configuration; returns its grid, its folder and its state-dir."""

    def run(name, nodes=Nodes, **keys):
        config = configured(**keys, run_dir=str(tmp_path / name))
        grid = nodes(config, tmp_path / f"{name}-state")
        run_app(config, grid)
        return grid, tmp_path / name, tmp_path / f"{name}-state"

    return run


@pytest.fixture
def compared(done):
    """Runs a configuration in both ways, which must find the same; returns the grid of the short one."""

    def run(nodes=Nodes, **keys):
        _, apart, kept = done("apart", nodes, **keys, evaluate_with_training="off")
        grid, together, also_kept = done("together", nodes, **keys)
        assert outcome(together) == outcome(apart)
        assert memories(also_kept) == memories(kept)
        return grid

    return run


RUNS = [
    {"client": "fedbn"},
    {"client": "silobn", "strategy": "fedyogi", "val_fraction": 0.2},
    {"client": "shared", "strategy": "feddyn", "objective": "feddyn", "eval_data": "local"},
    {"client": "silobn", "strategy": "scaffold", "objective": "scaffold", "metrics": "f1,auroc"},
    {"client": "shared", "strategy": "fedavgm", "fine_tune": 2, "client_lr_schedule": "exponential:0.5"},
    {"client": "ditto", "compress": "topk:0.2", "val_fraction": 0.2},
    {"client": "fedper", "compress_down": "bf16", "strategy": "fedadam", "server_lr_schedule": "cosine"},
    {"client": "alone", "strategy": "fedproto", "objective": "fedproto", "eval_data": "local"},
    {"client": "fedbn", "fraction_train": 0.5, "fraction_evaluate": 0.5},
    {"client": "fedbn", "dropout": 0.4, "seed": 3},
    {"client": "fedrep", "selection": "power-of-choice:3", "fraction_train": 0.5},
    {"client": "fedbn", "evaluate_every": 2, "mean": "median"},
    {"client": "silobn", "holdout_clients": 1, "target": "accuracy=0.01"},
    {"extension": "update-norm", "decide_by": "median", "patience": 4, "val_fraction": 0.2},
]


@pytest.mark.sampled(len(RUNS))
@pytest.mark.parametrize("keys", RUNS, ids=lambda keys: "-".join(map(str, keys.values())))
def test_a_run_finds_the_same_in_fewer_exchanges(keys, compared):
    grid = compared(**FOUR | keys)
    assert len([one for one in grid.exchanges if "train" in one]) == 3
    others = len([one for one in grid.exchanges if one == ["evaluate"]])
    questions = 3 if "selection" in keys else 0  # who is to train is asked by itself
    assert others == 1 + questions + (1 if "holdout_clients" in keys else 0)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["fedbn", "ditto"])
def test_a_memory_in_the_node_s_process_is_that_of_the_round_that_is_evaluated(client, configured, tmp_path):
    for way in ("off", "auto"):
        config = configured(**FOUR, client=client, evaluate_with_training=way, run_dir=str(tmp_path / way))
        run_app(config, InlineGrid(config.num_clients, config.to_user_config()))
    assert outcome(tmp_path / "auto") == outcome(tmp_path / "off")


TARGET = {"target": "accuracy=0.01", "stop_at_target": True}
STOPS = [
    ({"patience": 1, "val_fraction": 0.2, "client_lr": 1e-9}, "patience"),
    (TARGET, "target"),
    ({**TARGET, "holdout_clients": 1, "evaluate_every": 2, "decide_by": "median"}, "target"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("keys", "why"), STOPS)
@pytest.mark.parametrize("client", ["fedbn", "shared"])
def test_a_run_that_ends_throws_away_what_was_trained_since(keys, why, client, compared, tmp_path):
    """Also at the sites: the newest memory there is that of the last round that counts."""
    grid = compared(**FOUR | {"client": client, "strategy": "fedadam"} | keys)
    summary = json.loads((tmp_path / "together/summary.json").read_text())
    assert (last := summary["rounds"]) < 3
    assert summary["stopped"] == why
    assert len([one for one in grid.exchanges if "train" in one]) == last + 1
    kept = {path.name[40:46] for path in (tmp_path / "together-state").rglob("*.safetensors")}
    assert kept == ({f"{last:06d}"} if client == "fedbn" else set())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "cut", "position"),
    [  # every two of them meet in those with an odd sum
        pytest.param(*case, marks=getattr(pytest.mark, "slow" if sum(case) % 2 else "exhaustive"))
        if case[1] in (2, 3) or not sum(case) % 2
        else case
        for case in product((1, 2), (1, 2, 3, 4), (0, 1))
    ],
)
def test_a_run_that_was_cut_off_goes_on_to_the_same(every, cut, position, configured, done, tmp_path):
    keys = FOUR | {"client": "fedbn", "strategy": "fedyogi", "checkpoint_every": every, "rounds": 4}
    keys |= {"fraction_train": 0.75, "fraction_evaluate": 0.5}
    _, whole, _ = done("whole", **keys, evaluate_with_training="off")
    first = configured(**keys, run_dir=str(tmp_path / "run"))
    with pytest.raises(PowerCut):
        run_app(first, Nodes(first, tmp_path / "state", cut=cut, position=2 * position))
    again = configured(**keys, resume=str(tmp_path / "run"))
    run_app(again, Nodes(again, tmp_path / "state"))
    assert outcome(tmp_path / "run") == outcome(whole)


@pytest.mark.slow
def test_rounds_can_be_added_in_another_way(configured, done, tmp_path):
    keys = FOUR | {"client": "fedbn"}
    _, whole, _ = done("whole", **keys)
    done("run", **keys | {"rounds": 2})
    more = configured(**keys, evaluate_with_training="off", resume=str(tmp_path / "run"))
    run_app(more, Nodes(more, tmp_path / "run-state"))
    assert outcome(tmp_path / "run") == outcome(whole)


FAILING = """
from fedbn_flower.clients.policies.partial import FedBNClient

class Trains(FedBNClient):
    def evaluate(self, parameters, config):
        if self.task.seed[-1] == 1 and config["server-round"] == 2:
            raise ValueError("no evaluation")
        return super().evaluate(parameters, config)

class Evaluates(FedBNClient):
    def fit(self, parameters, config):
        if self.task.seed[-1] == 1 and config["server-round"] == 2:
            raise ValueError("no training")
        return super().fit(parameters, config)

class Neither(Trains, Evaluates):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("client", ["Trains", "Evaluates", "Neither"])
def test_a_client_that_fails_at_one_answers_the_other(client, compared, tmp_path):
    (tmp_path / "clients.py").write_text(FAILING)
    compared(**FOUR | {"client": f"{tmp_path / 'clients.py'}:{client}"})
    rows = outcome(tmp_path / "together")["failures"]
    phases = {"Trains": ["evaluate"], "Evaluates": ["train"], "Neither": ["train", "evaluate"]}[client]
    assert [(row["round"], row["phase"], row["partition"]) for row in rows] == [("2", p, "1") for p in phases]


@pytest.mark.slow
def test_an_answer_that_is_lost_lacks_in_both_rounds(done):
    """Without it nobody knows what the client found of round 1, and what it trained in round 2."""

    class Loses(Nodes):
        def work(self, messages, timeout):
            return super().work([message for message in messages if not lost(message)], timeout)

    def lost(message):
        facts = message.content.config_records.get("config", {})
        round_two = message.metadata.message_type == "train" and facts["server-round"] == 2
        return round_two and partition_of(message) == 1

    _, folder, _ = done("run", Loses, **FOUR | {"client": "fedbn", "round_timeout": 1})
    failures = [(row["round"], row["phase"], row["partition"]) for row in outcome(folder)["failures"]]
    assert failures == [("1", "evaluate", "1"), ("2", "train", "1")]
    assert [row["failures"] for row in outcome(folder)["metrics"]] == ["1", "1", "0"]


OWN_RULE = """
from fedbn_flower.strategies import FedAvg

class Mine(FedAvg):
    def configure_train(self, server_round, arrays, config, grid):
        return super().configure_train(server_round, arrays, config, grid)
"""
OWN_EXTENSION = """
from fedbn_flower.extensions import Extension

class Mine(Extension):
    def prepare(self, moment):
        pass
"""
STEPS_ASIDE = {
    "evaluate-with-training is 'off'": {"evaluate_with_training": "off"},
    "no client evaluates the model that it receives": {"eval_model": "local"},
    "some clients have no held-out examples": {"dataset": "{tmp}/sites", "partition": "natural:file"},
    "with protocol 'fedbuff:1' clients train older models": {"protocol": "fedbuff:1", "concurrency": 1},
    "with dp 'client' a round is accounted before the next": {
        "dp": "client", "dp_epsilon": 8.0, "dp_delta": 0.01, "dp_clip": "1.0", "weighting": "uniform",
        "client": "silobn",
    },
    "with secagg 'plain' training and evaluation are sums of different clients": {
        "secagg": "plain", "secagg_min": 2, "clip_update_norm": 1.0, "fraction_train": 0.5,
        "num_clients": 4, "partition": "iid",
    },
    "from round 2 on more of the model travels (unfreeze-at)": {"freeze": "1", "unfreeze_at": 2},
    "with strategy 'ifca' clients have different models": {"strategy": "ifca"},
    "strategy '{tmp}/rule.py:Mine' has messages of its own": {"strategy": "{tmp}/rule.py:Mine"},
    "strategy 'fedexp' sends another model than the one that is evaluated": {"strategy": "fedexp"},
    "extension '{tmp}/own.py:Mine' takes part in a round before the last one is evaluated": {
        "extension": "{tmp}/own.py:Mine"
    },
}  # fmt: skip


def test_where_nobody_evaluates_no_line_says_that_clients_are_asked_twice(done, caplog):
    with caplog.at_level(logging.INFO, "flwr.fedbn"):
        grid, _, _ = done("run", client="shared", rounds=2, fraction_evaluate=0.0)
    assert grid.exchanges == [["train"]] * 2
    assert "twice" not in caplog.text


def test_each_reason_to_step_aside_is_tried():
    found = built_in({"protocol": "fedbuff:1", "secagg": "on"})
    of_extensions = [cls for cls in found if "apart" in inspect.getsource(cls.about)]
    assert len(STEPS_ASIDE) == len(REASONS) + len(of_extensions)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("why", STEPS_ASIDE)
def test_a_run_whose_evaluation_cannot_wait_has_its_own_exchanges(why, done, tmp_path, caplog):
    """A line says why, if it was not asked for."""
    (tmp_path / "rule.py").write_text(OWN_RULE)
    (tmp_path / "own.py").write_text(OWN_EXTENSION)
    for place in ("train/a", "train/b", "test/a"):
        (path := tmp_path / f"sites/{place}.csv").parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x,y\n" + "1,0\n2,1\n" * 10)
    keys = {k: v.format(tmp=tmp_path) if isinstance(v, str) else v for k, v in STEPS_ASIDE[why].items()}
    with caplog.at_level(logging.INFO, "flwr.fedbn"):
        grid, _, _ = done("run", **{"client": "fedbn", "rounds": 2} | keys)
    assert all(phases in (["train"], ["evaluate"]) for phases in grid.exchanges)
    assert not any(grid.both)
    line = f"clients are asked twice a round, to train and to evaluate: {why.format(tmp=tmp_path)}"
    asked_for = {"evaluate_with_training", "eval_model"} & keys.keys()
    assert (line in caplog.messages) != bool(asked_for)


@pytest.mark.slow
def test_a_model_that_diverged_ends_the_run_though_it_was_trained_further(done, tmp_path):
    keys = FOUR | {"client": "silobn", "client_lr": 1e20, "local_epochs": 1}
    found = []
    for name in ("off", "auto"):
        with pytest.raises(RunFailed) as failed:
            done(name, **keys, evaluate_with_training=name)
        found.append((str(failed.value), outcome(tmp_path / name)["metrics"]))
    assert found[0] == found[1]


@pytest.mark.parametrize("splits", ["test", "train"])
def test_a_site_under_local_privacy_does_not_evaluate_because_it_trains(splits, done):
    """A server that asks for more with a train message is told so, and the training counts."""
    answers = []

    class Asks(Nodes):
        def work(self, messages, timeout):
            for message in messages:
                if message.metadata.message_type == "train":
                    asked = {**message.content["config"], "eval-splits": splits}
                    message.content = RecordDict({**message.content, "evaluation": ConfigRecord(asked)})
            for answer in super().work(messages, timeout):
                if answer.metadata.message_type == "train":
                    answers.append(set(answer.content))
                yield answer

    keys = {"dp": "local", "dp_noise": 1.0, "dp_delta": 0.01, "dp_clip": "1.0", "weighting": "uniform"}
    done("run", Asks, **keys, client="silobn", rounds=1, fraction_evaluate=0.0)
    assert answers == [{"arrays", "metrics", "memory", "evaluation.failed"}] * 2


def answer_of(*records):
    """A train message, an evaluation that goes with it, and their answer with these records."""
    content = RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord({"server-round": 2})})
    training = Message(content, 7, "train")
    evaluation = Message(RecordDict({"config": ConfigRecord({"server-round": 1})}), 7, "evaluate")
    together = JointEvaluation([evaluation])
    assert together.joined([training]) == [training]
    set_message_id(training, "one")
    return together.parts(Message(RecordDict(dict(records)), reply_to=training))


@pytest.mark.parametrize(
    "failed", [MetricRecord(), ArrayRecord(), ConfigRecord({"reason": 3.0}), ConfigRecord()]
)
def test_a_site_may_say_anything_of_a_failure(failed):
    """What is no reason in the right form is a record like any other, or no reason."""
    evaluated, trained = answer_of(("evaluation.failed", failed), ("failed", failed))
    for answer, phase in ((evaluated, "evaluate"), (trained, "train")):
        assert (answer.metadata.src_node_id, answer.metadata.message_type) == (7, phase)
        assert answer.has_error() == isinstance(failed, ConfigRecord)


def test_who_evaluates_only_is_asked_in_the_same_exchange():
    """And who trains only is asked no more than that."""
    content = RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord({"server-round": 2})})
    training = [Message(content, node, "train") for node in (1, 2)]
    asked = RecordDict({"config": ConfigRecord({"server-round": 1})})
    evaluation = [Message(asked, node, "evaluate") for node in (2, 3)]
    together = JointEvaluation(evaluation)
    sent = together.joined(training)
    assert sent == [*training, evaluation[1]]
    assert ["evaluation" in message.content for message in sent] == [False, True, False]
    for number, message in enumerate(sent):
        set_message_id(message, str(number))
    found = [together.parts(Message(RecordDict(), reply_to=message)) for message in sent]
    assert [(bool(evaluated), bool(trained)) for evaluated, trained in found] == [
        (False, True), (True, True), (True, False)
    ]  # fmt: skip
    stranger = Message(RecordDict(), reply_to=Message(asked, 9, "train"))
    assert together.parts(stranger) == (None, stranger)


@pytest.mark.parametrize("backend", ["nodes", "inline"])
def test_a_client_works_beside_the_step_and_a_round_is_finished_beside_both(
    backend, configured, tmp_path, monkeypatch
):
    """None stands in the stack of another: not a client below a step, nor a round's end below a client."""
    stacks = {}

    def seen(cls, name):
        function = getattr(cls, name)

        def noted(*arguments):
            stacks.setdefault(name, {frame.name for frame in traceback.extract_stack()})
            return function(*arguments)

        monkeypatch.setattr(cls, name, noted)

    seen(FedAvgClient, "fit")
    seen(FedAvg, "server_step")
    seen(Federation, "_finish")
    config = configured(strategy="fedavg", run_dir=str(tmp_path / "run"))
    inline = InlineGrid(config.num_clients, config.to_user_config())
    run_app(config, Nodes(config, tmp_path / "state") if backend == "nodes" else inline)
    rest = {"_collect", "_step", "_finish"}
    assert [rest & stacks[name] for name in ("fit", "server_step")] == [{"_collect"}, {"_step"}]
    assert not rest & stacks["_finish"]
    assert not stacks["fit"] & {"aggregate_train", "step_train"}


RULE = """
from fedbn_flower.strategies import PseudoGradientStrategy

class Mine(PseudoGradientStrategy):
    def server_step(self, delta, state, round):
        return delta
"""


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(28, "full"), "^run-dir: cannot write to"), (KeyError("x"), "^'x'$")]
)
def test_what_fails_as_a_round_is_completed_is_not_laid_to_the_rule(error, told, done, tmp_path, monkeypatch):
    """Though a rule of the user's is reading answers then, whose own mistakes are told as such."""
    (tmp_path / "rule.py").write_text(RULE)

    def fails(self, result):
        raise error

    monkeypatch.setattr(RoundTables, "add_round", fails)
    with pytest.raises((UserError, KeyError), match=told):
        done("run", client="fedbn", strategy=f"{tmp_path / 'rule.py'}:Mine", rounds=3)

"""Extensions at both ends of the wire: what they change, in which order, and what they may not return."""

import ast
import inspect

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from safetensors.numpy import load_file

from clients import FedAvgClient, NamedArrays, Update
from fedbn_flower import Extension, Stop, simulate
from fedbn_flower.extensions import built_in
from fedbn_flower.server import federation
from strategies import PhaseReport, setting
from strategies.messages.npy import viewed
from tests.test_house import ROOT

ORDER = [
    "SecAgg", "Compression", "PooledStatistics", "Attack", "Selection", "Holdout", "Freezing", "Target",
    "Privacy", "Patience", "Protocol", "Devices", "Rates", "FineTuning", "AdaptBN", "Predictions",
    "Recalibration",
]  # fmt: skip
HEARD = []
"""What extensions of a test have heard; in this process."""


@pytest.fixture
def run(cache_dir, tmp_path):
    """Simulates two clients of equal size; gives the model and the result."""
    HEARD.clear()
    small = {"rounds": 1, "local_epochs": 1, "partition": "iid", "model": "linear", "client": "shared"}
    small |= {"num_clients": 2, "weighting": "uniform", "strategy": "fedavg", "progress": False}

    def simulated(name="run", **keys):
        own = {"cache_dir": str(cache_dir), "run_dir": tmp_path / name, "backend": "inline"}
        result = simulate(**small | own | keys)
        return load_file(result.folder / "model.safetensors"), result

    return simulated


class Only(Extension):
    """Has one client train."""

    only: int = setting(0, ge=0, description="the one that trains")

    def prepare(self, moment):
        moment.rule.node_choice = lambda partitions, server_round: [p for p in partitions if p == self.only]
        carry, partition = moment.exchange.carry, moment.rule.node_directory.partition

        def heard(phase, messages):
            if phase == "train":
                HEARD.append((moment.number, [partition(m.metadata.dst_node_id) for m in messages]))
            return carry(phase, messages)

        moment.exchange.carry = heard


class Flipped(Extension):
    """Has client 1 send the opposite of what it has learnt."""

    in_workers = True

    @classmethod
    def trained(cls, outgoing, at):
        if at.client.task.seed[-1] != 1:
            return outgoing
        before, update = at.received().by_name(), outgoing.update
        after = outgoing.model(at.client.shared_names)
        flipped = {name: 2 * before[name] - after[name] for name in after}
        return outgoing.with_update(Update(NamedArrays(flipped), update.num_examples, update.metrics))


def test_the_guide_has_this_example():
    text = (ROOT / "docs" / "how-to" / "own-extension.md").read_text()
    assert inspect.getsource(Flipped) in text


class FlippedAlone(Flipped):
    """The same, of which nothing is said about workers."""

    in_workers = False


@pytest.mark.slow
def test_who_may_train_and_what_a_client_sends(run):
    """By what each client alone would make of the model: (x0 + x1) / 2, and (x0 + 2 x - x1) / 2."""
    start, _ = run("start", client_lr=1e-30)
    alone = [run(f"alone{i}", extensions=[Only], only=i)[0] for i in range(2)]
    assert HEARD == [(1, [0]), (1, [1])]
    both, _ = run("both")
    flipped, _ = run("flipped", extensions=[Flipped])
    for name in start:
        np.testing.assert_allclose(both[name], (alone[0][name] + alone[1][name]) / 2, rtol=0, atol=1e-6)
        expected = (alone[0][name] + 2 * start[name] - alone[1][name]) / 2
        np.testing.assert_allclose(flipped[name], expected, rtol=0, atol=1e-6)
        assert np.abs(flipped[name] - both[name]).max() > 1e-4


@pytest.mark.slow
def test_workers_do_the_same(run, on_the_pool):
    """They sum what the extension made of the updates, or send each if it does not say that they may."""
    here, _ = run("here", extensions=[Flipped], rounds=2)
    for name, extension in (("summed", Flipped), ("single", FlippedAlone)):
        there, result = run(name, extensions=[extension], rounds=2, backend="ray", workers=2)
        assert result.summary["runtime"][-1]["backend"] == "ray"
        assert {entry: array.tobytes() for entry, array in there.items()} == {
            entry: array.tobytes() for entry, array in here.items()
        }


class Heard(Extension):
    """Notes what it hears."""

    def before_round(self, server_round):
        HEARD.append((type(self).__name__, "before_round"))

    def prepare(self, moment):
        HEARD.append((type(self).__name__, "prepare"))

    def send(self, model, moment):
        HEARD.append((type(self).__name__, "send"))
        return model

    @classmethod
    def trained(cls, outgoing, at):
        HEARD.append((cls.__name__, "trained"))
        assert outgoing.codes is None
        return outgoing

    def received(self, answer, asked, moment):
        HEARD.append((type(self).__name__, "received"))
        assert {*answer.content["arrays"]} == {*moment.shared}  # whole models, whatever travelled
        return answer

    def published(self, model, before, sent, moment):
        HEARD.append((type(self).__name__, "published"))
        return model

    def after_round(self, result):
        HEARD.append((type(self).__name__, "after_round"))


class First(Heard):
    """Is named first."""


class Second(Heard):
    """Is named second."""


@pytest.mark.parametrize("compress", ["none", "topk:0.5"])
def test_hooks_are_called_in_the_order_from_the_wire_or_to_it(run, compress):
    run(extensions=[First, Second], compress=compress, num_clients=1)
    from_the_wire = ("before_round", "prepare", "received", "published", "after_round")
    to_the_wire = ("send", "trained")
    in_order = [hook for name, hook in HEARD if name == "First"]
    training = ["before_round", "prepare", "send", "trained", "received", "published"]
    assert in_order == [*training, "send", "after_round"]  # the second time to evaluate
    for hook in (*from_the_wire, *to_the_wire):
        names = [name for name, called in HEARD if called == hook]
        order = ["First", "Second"] if hook in from_the_wire else ["Second", "First"]
        assert names == order * (len(names) // 2), hook


def test_the_order_of_the_built_in_ones():
    """What comes after another may rely on what the other has made: see the comment at each `place`."""
    for annex in ("asynchronous", "attacks", "secagg"):
        pytest.importorskip(f"fedbn_flower.{annex}")
    assert [
        cls.__name__ for cls in built_in({"attack": "min-max", "protocol": "fedasync", "secagg": "on"})
    ] == ORDER
    others = [name for name in ORDER if name not in ("Attack", "Protocol", "SecAgg")]  # not asked for
    assert [cls.__name__ for cls in built_in({"attack": "none", "secagg": "off"})] == others


class Zeroed(Extension):
    """Sends a model of zeros, and publishes what came of it less 1."""

    def send(self, model, moment):
        return ArrayRecord({name: Array(np.zeros_like(viewed(array))) for name, array in model.items()})

    def published(self, model, before, sent, moment):
        assert all(not viewed(array).any() for array in sent.values())
        return ArrayRecord({name: Array(viewed(array) - np.float32(1)) for name, array in model.items()})


@pytest.mark.parametrize("down", ["none", "bf16"])
def test_what_is_sent_and_what_is_published(run, down):
    """A client that learns nothing gives back zeros, of which rounding took nothing."""
    model, _ = run(extensions=[Zeroed], client_lr=1e-30, eval_model="local", compress_down=down)
    assert all((array == -1).all() for array in model.values())


class Told(FedAvgClient):
    """Notes what it is told."""

    def fit(self, parameters, config):
        HEARD.append(config["word"])
        return super().fit(parameters, config)

    def evaluate(self, parameters, config):
        HEARD.append(config["word"])
        return super().evaluate(parameters, config)


class Tells(Extension):
    """Tells clients a word with each phase."""

    def settings(self, phase, moment):
        return {"word": f"{phase} {moment.number}"}


def test_clients_are_told_what_an_extension_says(run):
    run(extensions=[Tells], client=Told, num_clients=1)
    assert HEARD == ["train 1", "evaluate 1"]


class Ends(Extension):
    """Knows before the second round that it is the last one."""

    def before_round(self, server_round):
        return Stop("enough") if server_round == 2 else None

    def after_round(self, result):
        HEARD.append((result.server_round, result.last, result.splits))
        return Stop("enough") if result.server_round == 2 else None


class Others(Extension):
    """Says that others have failed to evaluate."""

    def evaluate(self, model, settings, moment):
        return {"others": PhaseReport(failures={7: "asleep"})} if moment.tests else {}


def test_a_round_that_is_known_to_be_the_last_is_evaluated_by_others_too(run):
    _, result = run(extensions=[Ends, Others], rounds=5, evaluate_every=4)
    assert HEARD == [(1, False, ""), (2, True, "test")]
    assert result.summary["stopped"] == "enough"
    lines = (result.folder / "failures.csv").read_text().splitlines()
    assert lines[1:] == ["2,others,7,asleep"]


def test_a_round_is_the_protocol_and_names_no_extension():
    steps = (getattr(federation.Federation, name) for name in ("_collect", "_step", "_finish"))
    assert all(len(inspect.getsource(step).splitlines()) <= 30 for step in steps)
    imported = [
        alias.name
        for node in ast.walk(ast.parse(inspect.getsource(federation)))
        if isinstance(node, ast.ImportFrom) and "extensions" in (node.module or "")
        for alias in node.names
    ]
    assert sorted(imported) == ["Moment", "collaborators", "extensions_of"]

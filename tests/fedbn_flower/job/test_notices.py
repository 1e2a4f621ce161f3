"""What a run warns of before its first round: data and models that are hardly what was meant."""

import numpy as np
import pytest
from torch import nn

from clients import FedAvgClient, Loss, Objective
from fedbn_flower import Extension
from fedbn_flower.core.errors import RunFailed
from fedbn_flower.server.federation import Federation

from ..data.test_own_data import Sites

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 6)).astype(np.float32)
Y = np.arange(24) % 3


GROUP_NORM = {"norm": "group:4", "client": "fedbn"}
FEDPAC = {"strategy": "fedpac", "client": "fedpac", "objective": "fedpac"}
FROZEN = {"client": "fedbn", "train": "4"}
NOBODY = {"client": "silobn", "fraction_evaluate": 0}


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"client": "fedbn", "model": "2nn"},
            "client: 'fedbn' keeps nothing at home of '2nn': it is 'shared' here",
        ),
        (
            {"client": "hbn", "model": "2nn"},
            "client: 'hbn' keeps nothing at home of '2nn': it is 'shared' here",
        ),
        ({"client": "fbn", "model": "2nn"}, "client: 'fbn' finds no BatchNorm in '2nn': it is 'shared' here"),
        (
            {"client": "fixbn", "model": "2nn"},
            "client: 'fixbn' finds no BatchNorm in '2nn': it is 'shared' here",
        ),
        (
            GROUP_NORM,
            "client: 'fedbn' keeps nothing at home of 'mlp-bn' with norm 'group:4': it is 'shared' here",
        ),
        (
            FROZEN,
            "client: 'fedbn' keeps nothing at home of 'mlp-bn', since all of that is frozen: it is 'shared' "
            "here; with frozen-bn 'adapt' BatchNorm statistics stay and adapt",
        ),
        (FROZEN | {"frozen_bn": "adapt"}, ""),
        (FEDPAC, ""),  # which shares everything by design
        (
            NOBODY,
            "fraction-evaluate: 0.0 asks no client, and the server lacks what client 'silobn' keeps at home: "
            "nothing is evaluated",
        ),
        (NOBODY | {"eval_model": "local"}, ""),
        (NOBODY | {"client": "shared"}, ""),
    ],
)
def test_a_choice_that_comes_to_nothing_is_one_line(configured, keys, line):
    assert Federation(configured(**keys)).warnings == [line] * bool(line)


@pytest.fixture
def output(begun):
    """The warnings of a run that begin so."""
    return lambda start, **keys: [line for line in begun(**keys).warnings if line.startswith(start)]


def ending(*layers, outputs=None):
    def model(spec):
        return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, outputs or spec.outputs), *layers)

    return model


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"model": ending(outputs=50)}, "has 50 outputs for 10 classes: the last 40 are never right"),
        ({"model": ending(nn.Softmax(1)), "loss": "focal"}, "ends in a softmax, and the loss applies one"),
        ({"model": ending(nn.LogSoftmax(1))}, "ends in a log-softmax, and the loss applies one itself"),
        ({"model": ending(nn.Sigmoid())}, None),
        ({"softmax_output": True}, None),
    ],
)
def test_outputs_that_the_loss_does_not_want_are_reported(output, keys, words):
    lines = output("model: ", **keys)
    assert [words in line for line in lines] == [True] * (words is not None)


@pytest.mark.parametrize(
    ("y", "is_told"),
    [(np.eye(3)[Y], True), (np.eye(3)[Y] * 2, False), (np.eye(3)[0 * Y], False), (np.float64(Y > 0), False)],
)
def test_one_hot_labels_are_reported(output, y, is_told):
    """Twice a one-hot row, one that is the same throughout, and a single number are numbers."""
    pytest.importorskip("fedbn_flower.inspection")
    lines = output("data: ", data=(X, y, X, y))
    expected = (
        "data: y looks one-hot (one 1 among 3 numbers per row), but float targets are learnt by regression "
        "with squared error; for classes give y.argmax(1)"
    )
    assert lines == [expected] * is_told


LARGE = np.where(np.arange(24) % 2, 60.0, 20.0)[:, None] + 0.25
"""Of mean 40.25, deviation 20 and root mean square 44.95: 0.05 times that is above 1, 0.02 times below."""


@pytest.mark.parametrize(
    ("keys", "is_told"),
    [
        ({}, True),
        ({"client_lr": 0.03}, True),
        ({"client_lr": 0.02}, False),
        ({"model": "linear"}, False),
        ({"client_optimizer": "adam"}, False),
        ({"clip_norm": 1.0}, False),
        ({"data": (X, LARGE / 20, X, LARGE / 20)}, False),
    ],
)
def test_numbers_too_large_to_be_learnt_are_named_with_what_to_do(output, keys, is_told):
    lines = output("data: target?", **{"data": (X, LARGE, X, LARGE), "model": "mlp-bn"} | keys)
    expected = (
        "data: target? y is 20.25 to 60.25, and squared errors of such numbers mostly make training "
        f"diverge at client-lr {keys.get('client_lr', 0.05)}: subtract its mean, 40.2, and divide by its "
        "deviation, 20; or, slower, client-lr 0.004"
    )
    assert lines == [expected] * is_told


@pytest.mark.slow
def test_a_column_too_large_to_be_learnt_diverges_and_what_is_said_helps(output, run, tmp_path):
    """The costs of a stay. Either of the two that the warning says ends in a finite model."""
    x = np.random.default_rng(1).normal(size=(300, 6)).round(3)
    costs = np.round(np.exp(8 + x @ np.linspace(-1, 1, 6)), 1)
    keys = {"dataset": str(tmp_path / "costs.csv"), "label_column": "cost", "model": "mlp-bn", "rounds": 1}
    keys |= {"batch_size": 16, "client": "shared", "partition": "iid"}

    def write(values):
        rows = [",".join(map(str, row)) for row in np.column_stack([x, values])]
        (tmp_path / "costs.csv").write_text("\n".join(["a,b,c,d,e,f,cost", *rows]))

    write(costs)
    (line,) = output("label-column: target?", **keys)
    assert line.startswith("label-column: target? 'cost' is ")
    with pytest.raises(RunFailed, match="is not finite; take a smaller client-lr than 0.05\n"):
        run(**keys)
    slower = {"client_lr": float(line.split()[-1])}
    assert output("label-column: target?", **keys, **slower) == []
    run(**keys, **slower)
    write((costs - costs.mean()) / costs.std())
    assert output("label-column: target?", **keys) == []
    run(**keys)


def test_the_largest_of_several_numbers_is_named(output, tmp_path):
    rows = [",".join(map(str, [*row, i % 2 + 0.5, 90 + i % 3])) for i, row in enumerate(X)]
    (tmp_path / "two.csv").write_text("\n".join(["a,b,c,d,e,f,low,high", *rows]))
    keys = {"dataset": str(tmp_path / "two.csv"), "label_column": "low,high", "model": "mlp-bn"}
    (line,) = output("label-column: target?", **keys)
    assert line.startswith("label-column: target? 'high' is 90 to 92, and squared errors of such numbers")


def test_a_class_that_only_the_test_set_has_is_reported(output):
    pytest.importorskip("fedbn_flower.inspection")
    train = Y < 2
    lines = output("labels: ", data=(X[train], Y[train], X, Y))
    expected = (
        "labels: the training set has no examples of the class 2, the test set has 8: no client can learn it"
    )
    assert lines == [expected]
    assert output("labels: ", data=(X, Y, X[train], Y[train])) == []


CHOSEN = (
    "metrics: accuracy, by which the best round is chosen, says little of an event in 4.0 % of all examples; "
    "--metrics auroc chooses it by AUROC"
)
REACHED = (
    "target: accuracy says little of an event in 4.0 % of all examples; with --metrics auroc a target can be "
    "auroc=0.8"
)


@pytest.mark.parametrize(
    ("events", "keys", "told"),
    [
        (4, {"best": "validation"}, [CHOSEN]),
        (4, {"patience": 1, "rounds": 2, "target": "accuracy=0.9"}, [CHOSEN, REACHED]),
        (4, {"target": "accuracy=0.9"}, [REACHED]),
        (4, {}, []),  # the last round's model is kept
        (4, {"best": "validation", "metrics": "auroc", "target": "auroc=0.9"}, []),
        (20, {"best": "validation"}, []),  # a fifth is not rare
    ],
)
def test_what_is_decided_by_the_accuracy_of_a_rare_event_is_told(output, events, keys, told):
    x, y = RNG.normal(size=(100, 6)).astype(np.float32), np.int64(np.arange(100) % 25 < events / 4)
    val_fraction = 0.2 * ("best" in keys or "patience" in keys)
    assert output(("metrics: ", "target: "), data=(x, y, x, y), val_fraction=val_fraction, **keys) == told


@pytest.mark.parametrize(("events", "told"), [(2, [CHOSEN, REACHED]), (20, [])])
def test_a_site_is_told_it_of_its_own_data_of_which_the_server_knows_nothing(
    configured, tmp_path, caplog, events, told
):
    pytest.importorskip("fedbn_flower.files")
    (tmp_path / "own.csv").write_text("\n".join(["x,died", *(f"{i},{int(i < events)}" for i in range(50))]))
    keys = {"patience": 2, "target": "accuracy=0.9", "val_fraction": 0.2, "rounds": 1, "model": "linear"}
    keys |= {"dataset": "shape:1:2", "label_column": "died", "columns": "x", "client": "shared"}
    config = configured(**keys, num_clients=2)
    nodes = [{"data-path": str(tmp_path / "own.csv"), "partition-id": number} for number in range(2)]
    federation = Federation(config)
    assert not [line for line in federation.warnings if "accuracy" in line]
    federation.run(Sites(config, nodes), [])
    assert [line for line in caplog.messages if "says little of" in line] == told * 2


def test_clients_of_one_class_each_are_reported(output):
    pytest.importorskip("fedbn_flower.inspection")
    assert output("partition: ", partition="silos", num_clients=3, data=(X, Y, X, Y)) == [
        "partition: each client has examples of only one class: alone it cannot tell classes apart"
    ]
    assert output("partition: ", partition="silos", num_clients=2, data=(X, Y, X, Y)) == []


class Misspelt(Objective):
    """Its `correct_gradients` lacks a letter."""

    elementwise = True

    def correct_gradient(self):
        raise AssertionError


class Spelt(Misspelt):
    def correct_gradients(self):
        pass


class Halfway(FedAvgClient):
    @staticmethod
    def local_entry(model):
        raise AssertionError


class Uncalled(Loss):
    def call(self, output, targets, reduction="mean"):
        raise AssertionError


class Unheard(Extension):
    def after_rounds(self, result):
        raise AssertionError


class Heard(Extension):
    def on_round(self, result):
        """As an observer's."""


class Unchanged(FedAvgClient):
    """As its base, and on purpose."""


@pytest.mark.parametrize(
    ("keys", "base"),
    [
        ({"objective": Misspelt}, "Objective"),
        ({"client": Halfway}, "FedAvgClient"),
        ({"loss": Uncalled}, "Loss"),
        ({"extension": Unheard}, "Extension"),
        ({"extension": Heard}, None),
        ({"objective": Spelt}, None),
        ({"client": Unchanged}, None),
        ({"objective": "fedprox"}, None),
    ],
)
def test_a_class_whose_methods_are_misspelt_is_reported(output, keys, base):
    lines = output(tuple(f"{key}: " for key in keys), **keys)
    assert [line.endswith(f" overrides no method of {base}: is a name misspelt?") for line in lines] == [
        True
    ] * (base is not None)

"""What a run warns of before its first round: data and models that are hardly what was meant."""

import numpy as np
import pytest
from torch import nn

from clients import FedAvgClient, Loss, Objective
from fedbn_flower.results.run_reader import Run

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 6)).astype(np.float32)
Y = np.arange(24) % 3


@pytest.fixture
def output(run, caplog):
    """The warnings of a run of one round that begin so."""

    def lines(beginning, **keys):
        run(**{"rounds": 1, "client": "fedavg", "model": "linear", "partition": "iid"} | keys)
        found = [r.message for r in caplog.records if r.levelname == "WARNING"]
        caplog.clear()
        return [line for line in found if line.startswith(beginning)]

    return lines


@pytest.fixture
def learnt(run):
    """What a run of one round says that it learns."""
    names = {"client": "fedavg", "model": "linear", "partition": "iid"}
    return lambda **keys: Run.read(run(**{"rounds": 1} | names | keys).folder).learnt


def ending(*layers, outputs=None):
    def model(spec):
        return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, outputs or spec.outputs), *layers)

    return model


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"model": ending(outputs=50)},
            "has 50 outputs for 10 classes: the last 40 are never right",
        ),
        ({"model": ending(nn.Softmax(1))}, "ends in a softmax, and the loss applies one itself"),
        ({"model": ending(nn.Softmax(1)), "loss": "focal"}, "ends in a softmax, and the loss applies one"),
        ({"model": ending(nn.LogSoftmax(1))}, "ends in a log-softmax, and the loss applies one itself"),
        ({"model": ending()}, None),
        ({"model": ending(nn.Sigmoid())}, None),
        ({"model": "mlp-bn"}, None),
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
    lines = output("data: ", data=(X, y, X, y))
    expected = (
        "data: y looks one-hot (one 1 among 3 numbers per row), but float targets are learnt by regression "
        "with squared error; for classes give y.argmax(1)"
    )
    assert lines == [expected] * is_told


@pytest.mark.parametrize("x", [X, np.uint8(X.reshape(24, 1, 2, 3) * 9 + 99)])
def test_class_numbers_with_gaps_are_reported(learnt, x):
    y = np.where(Y > 0, 7, 0)
    said = "only 2 of the class numbers 0-7 occur; the model has 8 outputs"
    assert [note.text for note in learnt(data=(x, y, x, y)) if note.row == "target"][1:] == [said]
    assert [note.text for note in learnt(data=(x, Y, x, Y)) if note.row == "target"][1:] == []


def test_a_class_that_only_the_test_set_has_is_reported(output):
    train = Y < 2
    lines = output("labels: ", data=(X[train], Y[train], X, Y))
    expected = (
        "labels: the training set has no examples of the class 2, the test set has 8: no client can learn it"
    )
    assert lines == [expected]
    assert output("labels: ", data=(X, Y, X[train], Y[train])) == []


def test_clients_of_one_class_each_are_reported(output):
    assert output("partition: ", partition="silos", num_clients=3, data=(X, Y, X, Y)) == [
        "partition: each client has examples of only one class: alone it cannot tell classes apart"
    ]
    assert output("partition: ", partition="silos", num_clients=2, data=(X, Y, X, Y)) == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, []),
        ({"client_optimizer": "adam", "weight_decay": 0.1}, []),
        ({"client_optimizer": "rmsprop", "client_momentum": 0.9}, []),
        (
            {"client_optimizer": "adamw:eps=1e-6"},
            [
                "weight-decay: 0.0 goes to client-optimizer 'adamw:eps=1e-6', for which torch's default is "
                "0.01"
            ],
        ),
        ({"client_optimizer": "adamw", "weight_decay": 0.01}, []),
    ],
)
def test_keys_of_the_optimiser_that_are_not_torchs_defaults(output, keys, expected):
    assert output(("client-momentum: ", "weight-decay: "), **keys) == expected


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


class Unchanged(FedAvgClient):
    """As its base, and on purpose."""


@pytest.mark.parametrize(
    ("keys", "base"),
    [
        ({"objective": Misspelt}, "Objective"),
        ({"client": Halfway}, "FedAvgClient"),
        ({"loss": Uncalled}, "Loss"),
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

"""Which round's model and figures a run's folder has."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord

from fedbn_flower.results.kept_round import KeptRounds
from fedbn_flower.server.federation import Federation
from strategies import PhaseReport

from ..records.helpers import result


@pytest.fixture
def rounds(configured):
    return KeptRounds(Federation(configured(rounds=4, client="shared")), {"1": 7}, None)


def a_round(rounds, number, **values):
    """A round whose model and accuracy are its number."""
    initial = rounds.federation.initial
    arrays = ArrayRecord({name: Array(np.full_like(entry, number)) for name, entry in initial.items()})
    report = PhaseReport({0: MetricRecord({"num-examples": 10, "loss": 1.0, "accuracy": float(number)})})
    values = {"splits": "test", "evaluate": report, **values}
    return result(number, {"loss": 1.0, "accuracy": float(number)}, train=report, arrays=arrays, **values)


def kept(rounds):
    """The number of the round whose model is kept, and of the one whose figures are."""
    entries = {float(entry.flat[0]) for entry in rounds.kept.entries.values()}
    assert len(entries) == 1
    return entries.pop(), rounds.kept.figures.mean and rounds.kept.figures.mean["accuracy"]


def test_the_last_round_is_kept_unless_it_is_not_to_be(rounds):
    rounds.take(a_round(rounds, 1))
    rounds.take(a_round(rounds, 2))
    assert kept(rounds) == (2.0, 2.0)
    rounds.take(a_round(rounds, 3, kept=False))
    assert kept(rounds) == (2.0, 2.0)


def test_the_model_that_is_kept_is_no_copy(rounds):
    last = a_round(rounds, 1)
    rounds.take(last)
    data = {name: np.frombuffer(array.data, np.uint8) for name, array in last.arrays.items()}
    assert all(np.shares_memory(entry, data[name]) for name, entry in rounds.kept.entries.items())


def test_of_a_run_that_diverged_the_last_round_that_was_evaluated_is_kept(rounds):
    rounds.take(a_round(rounds, 1))
    rounds.take(a_round(rounds, 2, splits="", evaluate=PhaseReport()))
    assert kept(rounds) == (2.0, None)
    rounds.take(a_round(rounds, 3, diverged="the server's loss is nan"))
    assert kept(rounds) == (1.0, 1.0)


def test_numbers_of_training_examples_stay_known(rounds):
    """Those of partition 1 are from a checkpoint; it has not answered since."""
    rounds.take(a_round(rounds, 1))
    assert rounds.train_examples == {"0": 10, "1": 7}
    assert rounds.kept.figures.clients == {"0": {"loss": 1.0, "accuracy": 1.0, "num-examples": 10}}

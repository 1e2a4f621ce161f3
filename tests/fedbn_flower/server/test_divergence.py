"""A run that loses its model to NaN or infinity is a failed run, and the last finite model stays."""

import json
from pathlib import Path

import pytest
from flwr.app import ArrayRecord
from safetensors.numpy import load_file

from fedbn_flower.core.errors import RunFailed
from fedbn_flower.records.events import RoundResult
from fedbn_flower.server.refusals import Divergence, first_to_diverge
from strategies import PhaseReport

TOO_LARGE = """
from strategies import FedAvg


class Late(FedAvg):
    def server_step(self, delta, state, round):
        return delta * (1 if round.number < 3 else {factor})
"""


def late(factor):
    """A rule whose third step is so many times too large."""
    Path("late.py").write_text(TOO_LARGE.format(factor=factor))
    return {"strategy": "late.py:Late"}


def entries(folder):
    return {name: array.tolist() for name, array in load_file(f"{folder}/model.safetensors").items()}


NOT_FINITE = "evaluation diverged: the loss is nan"
BEFORE = "the last that was evaluated and finite is that of round 2"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("client", "factor", "words"),
    [
        ("fedavg", 1e30, f"round 3: the model has diverged (server: {NOT_FINITE}); {BEFORE}"),
        ("fedbn", 1e30, f"the model has diverged (client 0: FloatingPointError: {NOT_FINITE}); {BEFORE}"),
        ("fedbn", 1e60, "round 3, train: Late diverged: its step makes 1.bias not finite"),
    ],
)
def test_the_run_fails_and_the_last_finite_model_stays(run, client, factor, words):
    """1e30 is finite as a weight and no longer as a loss; 1e60 is not finite in float32."""
    keys = late(factor) | {"client": client}
    run(**keys, rounds=2, run_dir="two")
    with pytest.raises(RunFailed) as failed:
        run(**keys, rounds=9, run_dir="nine")
    assert words in str(failed.value)
    assert entries("nine") == entries("two")
    both = [json.loads(Path(f"{folder}/summary.json").read_text()) for folder in ("two", "nine")]
    assert both[0]["clients"] == both[1]["clients"]
    assert "nan" not in Path("nine/summary.json").read_text().lower()


def test_a_run_that_evaluates_nothing_fails_where_training_never_comes_back(run):
    with pytest.raises(RunFailed) as failed:
        run(**late(1e37), client="fedbn", fraction_evaluate=0, rounds=5)
    assert (
        "every client's training diverged from round 4 on (client 0: FloatingPointError: training diverged: "
        "1.weight is not finite); the model is that of the round before; take a smaller client-lr than 0.05"
    ) in str(failed.value)


def report(*reasons, answered=()):
    return PhaseReport(metrics=dict.fromkeys(answered), failures=dict(enumerate(reasons)))


def test_one_clients_word_is_not_enough_where_there_are_others():
    assert first_to_diverge(report("diverged: a", "diverged: b"), at_least=2) == "client 0: diverged: a"
    assert not first_to_diverge(report("diverged"), at_least=2)
    assert not first_to_diverge(report("diverged", "ran out of memory"))
    assert not first_to_diverge(report("diverged", answered=[1]))
    assert not first_to_diverge(report())


def rounds(*trained):
    """A run's rounds, each of which trained somebody or had everybody diverge."""
    nobody = PhaseReport()
    for number, well in enumerate(trained, start=1):
        found = report(answered=[0]) if well else report("diverged")
        yield RoundResult(number, 0.1, ArrayRecord(), found, nobody, {}, None, ("loss",))


@pytest.mark.parametrize(
    ("trained", "since"), [([1, 0, 1], 0), ([1, 1, 0], 0), ([1, 0, 0], 2), ([0, 0, 1, 0, 0], 4)]
)
def test_rounds_that_diverge_count_from_the_first_of_the_last(trained, since):
    divergence = Divergence()
    for result in rounds(*trained):
        divergence.note(result)
    if since:
        with pytest.raises(RunFailed, match=f"diverged from round {since} on"):
            divergence.check_end(0.05)
    else:
        divergence.check_end(0.05)

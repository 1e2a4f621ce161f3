"""Observers of whole runs, on every runtime of this machine."""

import json

import pytest
from flwr.app import Context, RecordDict

from fedbn_flower import Observer, simulate
from fedbn_flower.core.errors import RunFailed
from fedbn_flower.runtime import server_app, simulation
from fedbn_flower.runtime.grid import InlineGrid
from fedbn_flower.runtime.recorded_run import run_info
from fedbn_flower.server.federation import Federation

SILOS = {"partition": "silos:0-4,5-9", "num_clients": 2}


class Notes(Observer):
    """Writes down every call, and raises after a round."""

    def __init__(self, after=0, error=None):
        self.notes, self.after, self.error = [], after, error

    def on_start(self, info):
        self.info = info
        assert (info.folder / "config.json").exists()
        self.notes.append(("start", info.first_round))

    def on_answer(self, server_round, phase, done, asked):
        self.notes.append((phase, done))

    def on_round(self, result):
        self.notes.append(("round", result.server_round))
        self.accuracy = result.metrics["accuracy"]
        if result.server_round == self.after:
            raise self.error

    def on_end(self, summary, error):
        self.summary, self.ended_by = summary, error
        self.notes.append(("end", summary and summary["rounds"]))

    @property
    def without_answers(self):
        return [note for note in self.notes if note[0] in {"start", "round", "end"}]


ANSWERS = [("train", 1), ("train", 2), ("evaluate", 1), ("evaluate", 2)]
TWO_ROUNDS = [("start", 1), *ANSWERS, ("round", 1), *ANSWERS, ("round", 2), ("end", 2)]
IN_THREE_EXCHANGES = [
    ("start", 1), *ANSWERS[:2], *ANSWERS[:2], ("round", 1), *ANSWERS[2:], ("round", 2), ("end", 2)
]  # fmt: skip
"""The second round's training is answered together with the evaluation of the first round's model."""


def check(notes, folder, calls=TWO_ROUNDS):
    """Of a run of two rounds that went well."""
    assert notes.notes == calls
    assert notes.accuracy == notes.summary["mean"]["accuracy"]
    assert notes.ended_by is None
    assert notes.summary == json.loads((folder / "summary.json").read_text())
    assert notes.info.folder == folder


@pytest.mark.parametrize(
    "backend", ["inline", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.exhaustive])]
)
def test_the_calls_of_a_simulation_in_their_order(run, tmp_path, backend):
    notes = Notes()
    keys = {"backend": backend, "workers": 1 if backend == "ray" else 0}
    result = run(run_dir=tmp_path / "run", observers=[notes], **SILOS, **keys)
    check(notes, result.folder)


def test_the_calls_under_the_server_app(tmp_path, cache_dir, monkeypatch):
    """Its RoundLog stands for every observer: there are no others."""
    notes = Notes()
    monkeypatch.setattr(server_app, "RoundLog", lambda: notes)
    here = {"cache-dir": str(cache_dir), "run-dir": str(tmp_path / "run")}
    config = {"dataset": "digits", "rounds": 2, **here}
    server_app.main(InlineGrid(2, config), Context(0, 0, {}, RecordDict(), config))
    check(notes, tmp_path / "run", IN_THREE_EXCHANGES)


def test_what_is_known_of_a_run(configured, tmp_path):
    config = configured(strategy="fedadam", tau=0.01, rounds=7, **SILOS)
    output = run_info(Federation(config), tmp_path, None)
    assert (output.first_round, output.rounds, output.folder) == (1, 7, tmp_path)
    assert (output.dataset, output.partition, output.client_names) == ("digits", "silos:0-4,5-9", ())
    assert (output.metrics, output.compared_by) == (("loss", "accuracy"), "accuracy")
    assert output.higher_is_better == {"accuracy"}
    assert output.config["tau"] == 0.01
    assert output.config.keys() >= {"strategy", "client-lr", "beta-1"}
    json.dumps(dict(output.config))


def test_a_run_that_fails(run, tmp_path):
    """Every client fails, so no round has a figure; the summary still counts the failures."""
    notes = Notes()
    with pytest.raises(RunFailed) as caught:
        run(run_dir=tmp_path / "run", observers=[notes], client_lr=1e30, rounds=1, **SILOS)
    assert notes.ended_by is caught.value
    assert notes.without_answers == [("start", 1), ("round", 1), ("end", 1)]
    assert notes.summary["failures"] == 2


def test_a_run_that_is_stopped_and_one_that_goes_on(run, tmp_path):
    """The others are told, and the run can be resumed."""
    error = KeyboardInterrupt()
    stopped, other, later = Notes(after=2, error=error), Notes(), Notes()
    with pytest.raises(KeyboardInterrupt):
        run(run_dir=tmp_path / "run", observers=[stopped, other], rounds=3, **SILOS)
    assert stopped.ended_by is other.ended_by is error
    assert stopped.without_answers == [("start", 1), ("round", 1), ("round", 2), ("end", 2)]
    assert other.without_answers == [("start", 1), ("round", 1), ("end", 2)]
    result = simulate(resume=tmp_path / "run", progress=False, observers=[later])
    assert later.without_answers == [("start", 3), ("round", 3), ("end", 3)]
    assert (later.info.first_round, later.info.rounds) == (3, 3)
    assert later.ended_by is None
    assert later.summary == result.summary


def test_no_observer_learns_of_a_run_that_cannot_begin(configured, tmp_path):
    notes = Notes()
    config = configured(resume=str(tmp_path))
    with pytest.raises(ValueError, match="resume"):
        simulation.simulate(Federation(config), tmp_path, None, [notes])
    assert notes.notes == []

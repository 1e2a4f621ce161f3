"""TensorBoard, and observers of one's own."""

import csv
import re

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedbn_flower import Observer, UserError, simulate
from fedbn_flower.results import tensorboard


def scalars(folder, name):
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


@pytest.mark.slow  # the import of TensorBoard
def test_tensorboard_has_what_metrics_csv_has(run, tmp_path):
    result = run(run_dir=tmp_path / "run", rounds=1, tensorboard=True)
    result = simulate(resume=result.folder, rounds=3, progress=False)
    with (result.folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    for name in ("accuracy", "train-loss", "client-mean-loss", "failures"):
        expected = [(int(row["round"]), float(row[name])) for row in rows]
        found = scalars(result.folder, name)
        assert [step for step, _ in found] == [step for step, _ in expected]
        assert [value for _, value in found] == pytest.approx([value for _, value in expected])
    with pytest.raises(KeyError):
        scalars(result.folder, "global-accuracy")  # with FedBN there is none


def test_without_the_flag_there_is_none(run):
    assert not (run(rounds=1).folder / "tensorboard").exists()


def test_not_installed_it_is_a_line_before_anything_starts(run, tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    output = "tensorboard: True is not allowed; .* pip install 'fedbn-flower[tensorboard]'"
    with pytest.raises(UserError, match=output.replace("[", r"\[").replace("]", r"\]")) as caught:
        run(run_dir=tmp_path / "run", tensorboard=True)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_an_observer_of_ones_own_sees_every_round(run):
    class Mine(Observer):
        def __init__(self):
            self.seen = []

        def on_round(self, result):
            self.seen.append((result.server_round, result.metrics["accuracy"]))

    mine = Mine()
    result = run(rounds=2, observers=[mine])
    assert [number for number, _ in mine.seen] == [1, 2]
    assert mine.seen[-1][1] == result.summary["mean"]["accuracy"]


def test_an_observer_is_one():
    with pytest.raises(
        UserError, match=re.escape("observers: 3 is not allowed; expected instances of Observer")
    ):
        simulate(observers=[3])

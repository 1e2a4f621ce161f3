"""Trackers of experiments."""

import csv
import json
import struct
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedbn_flower import Observer, UserError, simulate
from fedbn_flower.core.errors import RunFailed
from fedbn_flower.trackers import chosen
from fedbn_flower.trackers.chosen import Tracker


def rows_of(folder):
    """The rows of ``metrics.csv``: numbers by column, of the cells that are not empty."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [{key: float(text) for key, text in row.items() if text} for row in csv.DictReader(file)]


def check_history(folder, history):
    """A tracker has each round once, under its number, with all that its row has."""
    rows = rows_of(folder)
    assert len(rows) > 1
    for name in rows[0].keys() - {"round"}:
        assert [step for step, _ in history(name)] == [row["round"] for row in rows], name
        expected = [row[name] for row in rows]
        if "seconds" not in name:  # a round that is repeated takes as long as it takes
            assert [value for _, value in history(name)] == pytest.approx(expected), name


def failing_and_resumed(run, name, folder):
    """A run that ends in round 3, whose last checkpoint is of round 2, and goes on to round 4."""

    class Ends(Observer):
        def on_round(self, result):
            if result.server_round == 3:
                raise RunFailed("the end")

    with pytest.raises(RunFailed, match="the end"):
        run(rounds=4, checkpoint_every=2, track=name, run_dir=folder, observers=[Ends()])
    assert len(rows_of(folder)) == 3
    yield
    simulate(resume=folder, progress=False)
    yield


# ---- what all have in common -------------------------------------------------------------------------


class Kept(Tracker):
    """Keeps what it is told, and raises in a method if it is to."""

    name = "kept"

    def __init__(self, raises_in=""):
        self.raises_in = raises_in
        self.calls = []

    def called(self, name, *words):
        self.calls.append((name, *words))
        if name == self.raises_in:
            raise ConnectionError("no server\nat all")

    def start(self, info, folder, earlier):
        self.called("start", earlier)
        return "id-1"

    def log(self, server_round, numbers):
        self.called("log", server_round)
        self.numbers = numbers

    def end(self, folder, failed):
        self.called("end", failed)


def test_a_tracker_gets_all_that_the_row_has_and_a_resumed_run_goes_on_under_the_same_id(run):
    """Also if it began to go on in another, which adds its own."""
    first, other, last = Kept(), Kept(), Kept()
    folder = run(rounds=1, observers=[first]).folder
    assert json.loads((folder / "trackers.json").read_text()) == {"kept": "id-1"}
    (row,) = rows_of(folder)
    assert row.keys() - {"round"} <= first.numbers.keys()
    for name in row.keys() - {"round"}:
        assert first.numbers[name] == pytest.approx(row[name], abs=1e-3)
    other.name = "other"
    simulate(resume=folder, rounds=2, progress=False, observers=[other])
    assert json.loads((folder / "trackers.json").read_text()) == {"kept": "id-1", "other": "id-1"}
    simulate(resume=folder, rounds=3, progress=False, observers=[last])
    assert first.calls == [("start", None), ("log", 1), ("end", False)]
    assert last.calls == [("start", "id-1"), ("log", 3), ("end", False)]


@pytest.mark.parametrize(("raises_in", "calls"), [("start", 1), ("log", 2), ("end", 3)])
def test_a_tracker_that_fails_is_one_line_and_the_run_goes_on(run, caplog, raises_in, calls):
    kept = Kept(raises_in)
    assert run(rounds=1, observers=[kept]).summary["rounds"] == 1
    assert len(kept.calls) == calls
    assert [line for line in caplog.messages if line.startswith("track: ")] == [
        "track: kept failed, and the run goes on without it: ConnectionError: no server at all"
    ]


def test_a_run_that_fails_is_told_to_the_tracker(run):
    kept = Kept()
    with pytest.raises(RunFailed):
        run(rounds=2, client_lr=1e30, observers=[kept])
    assert kept.calls[-1] == ("end", True)


# ---- each of them ------------------------------------------------------------------------------------


def scalars(folder, name):
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


@pytest.mark.slow  # the import of TensorBoard
def test_tensorboard_has_what_metrics_csv_has(run, tmp_path):
    result = run(run_dir=tmp_path / "run", rounds=1, track="tensorboard")
    result = simulate(resume=result.folder, rounds=3, progress=False)
    check_history(result.folder, lambda name: scalars(result.folder, name))
    with pytest.raises(KeyError):
        scalars(result.folder, "global-accuracy")  # with FedBN there is none


@pytest.mark.slow  # the import of MLflow
def test_mlflow_has_what_metrics_csv_has(run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    store = (tmp_path / "store").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    client, folder = mlflow.MlflowClient(store), tmp_path / "run"

    def found():
        experiment = client.get_experiment_by_name("fedbn-flower").experiment_id
        (only,) = client.search_runs([experiment])
        return only

    steps = failing_and_resumed(run, "mlflow", folder)
    next(steps)
    assert found().info.status == "FAILED"
    next(steps)
    one = found()
    assert (one.info.status, one.info.run_name) == ("FINISHED", "run")
    assert (one.data.params["strategy"], one.data.params["server-lr"]) == ("fedyogi", "0.01")

    def history(name):
        return [(metric.step, metric.value) for metric in client.get_metric_history(one.info.run_id, name)]

    check_history(folder, history)


@pytest.mark.slow  # the import of MLflow
def test_without_mlflows_server_the_run_goes_on(run, monkeypatch, caplog):
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # nothing answers there
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    assert run(track="mlflow").summary["rounds"] == 2
    (line,) = [line for line in caplog.messages if line.startswith("track: ")]
    assert line.startswith(
        "track: mlflow failed, and the run goes on without it: MlflowException: API request"
    )
    assert "\n" not in line


def records_of(path):
    """The records of a file of W&B: after 7 bytes a log of LevelDB, whose blocks have 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, content = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 2**15 - at % 2**15) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        content += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(content)
            content = b""


def offline_runs(folder):
    """The id, the configuration and the history of each run that W&B wrote into a folder, oldest first."""
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        records = list(records_of(path))
        runs = [record.run for record in records if record.WhichOneof("record_type") == "run"]
        config = {one.key: json.loads(one.value_json) for one in runs[0].config.update}
        history = [
            {one.key or ".".join(one.nested_key): json.loads(one.value_json) for one in record.history.item}
            for record in records
            if record.WhichOneof("record_type") == "history"
        ]
        yield runs[0].run_id, config, history


@pytest.mark.slow  # the import of W&B, and its service
def test_wandb_offline_has_what_metrics_csv_has(run, tmp_path, monkeypatch):
    """Offline because it is told so, and then because it has no key."""
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "run"
    steps = failing_and_resumed(run, "wandb", folder)
    next(steps)
    (number,) = json.loads((folder / "trackers.json").read_text()).values()
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    next(steps)
    (first, config, before), (second, _, after) = offline_runs(folder)
    assert first == second == number
    assert (config["strategy"], config["rounds"]) == ("fedyogi", 4)
    assert [one["_step"] for one in before] == [1, 2, 3]
    assert [one["_step"] for one in after] == [3, 4]  # the server drops the step that it has
    by_step = {one["_step"]: one for one in (*before, *after)}
    for row in rows_of(folder):
        for name in row.keys() - {"round", "seconds", "train-seconds", "evaluate-seconds", "server-seconds"}:
            assert by_step[row["round"]][name] == pytest.approx(row[name])


# ---- not asked for, not installed --------------------------------------------------------------------


def test_without_the_flag_there_is_none(run):
    folder = run(rounds=1).folder
    assert not [name for name in ("tensorboard", "trackers.json", "wandb") if (folder / name).exists()]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_not_installed_it_is_a_line_before_anything_starts(run, tmp_path, monkeypatch, name):
    monkeypatch.setattr(chosen, "find_spec", lambda name: None)
    with pytest.raises(UserError) as caught:
        run(run_dir=tmp_path / "run", track=name)
    assert str(caught.value) == (
        f"track: {name!r} is not allowed; expected none, for {name} is not installed: pip install "
        f"'fedbn-flower[{name}]'"
    )
    assert not (tmp_path / "run").exists()


def test_every_tracker_has_its_extra(configured):
    """Of the name that the message gives."""
    extras = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    for name in chosen.TRACKERS:
        assert f"\n{name} = [" in extras
        assert [one.name for one in chosen.trackers(configured(track=name))] == [name]
    assert chosen.trackers(configured()) == []

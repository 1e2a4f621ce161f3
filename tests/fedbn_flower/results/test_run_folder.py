"""When a run's folder is written, what it holds whatever ends the run, and what is told if it cannot be."""

import errno
import json
import os
import threading
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from fedbn_flower import Result, cli
from fedbn_flower.core import files
from fedbn_flower.core.errors import UserError
from fedbn_flower.core.files import CsvLog
from fedbn_flower.records.events import Observer
from fedbn_flower.results.checkpoints.checkpoint_folder import BackgroundWriter, CheckpointFolder
from fedbn_flower.results.run_reader import Run
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from tests.quick import diagonal_quick

from ..records.helpers import Stops
from .written import csv_rows, summary_of, write_run

BITS = {"strategy": "fedyogi", "client": "fedbn", "partition": "dirichlet:0.5", "num_clients": 2}


def rounds_of(folder, name="metrics.csv"):
    return list(dict.fromkeys(int(row["round"]) for row in csv_rows(folder / name)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "saved"),
    [(0, [0, 0, 0, 0, 0]), (1, [1, 2, 3, 4, 5]), (2, [0, 2, 2, 4, 5]), (9, [0, 0, 0, 0, 5])],
)
def test_what_costs_is_done_as_often_as_checkpoints_and_at_the_end(
    configured, tmp_path, monkeypatch, every, saved
):
    """Rows are there after every round; the model, the summary and whatever is synced are not."""
    monkeypatch.setattr(BackgroundWriter, "submit", lambda self, job, size: job())
    folder, synced, found, totals = tmp_path / "run", [], [], []
    fsync = os.fsync
    monkeypatch.setattr(files.os, "fsync", lambda handle: synced.append(handle) or fsync(handle))

    class Watch(Observer):
        def on_round(self, result):
            checkpoint = CheckpointFolder(folder / "checkpoint").load()
            summary = folder / "summary.json"
            found.append(
                (
                    checkpoint.server_round if checkpoint else 0,
                    json.loads(summary.read_text())["rounds"] if summary.exists() else 0,
                )
            )
            totals.append(len(synced))
            assert rounds_of(folder) == rounds_of(folder, "clients.csv") == [*range(1, len(found) + 1)]

    simulate(Federation(configured(rounds=5, checkpoint_every=every)), folder, None, [Watch()])
    assert found == [(n, n) for n in saved]
    assert [b > a for a, b in pairwise(totals)] == [b > a for a, b in pairwise(saved)]
    assert json.loads((folder / "summary.json").read_text())["rounds"] == 5
    assert (folder / "model.safetensors").exists()


@pytest.mark.parametrize(("every", "error"), diagonal_quick([0, 3], [KeyboardInterrupt, RuntimeError]))
def test_a_run_that_is_stopped_leaves_its_last_round(configured, tmp_path, every, error):
    stops = Stops(5, error)
    with pytest.raises(error):
        simulate(
            Federation(configured(**BITS, rounds=9, checkpoint_every=every)), tmp_path / "run", None, [stops]
        )
    model = load_file(tmp_path / "run" / "model.safetensors")
    for name, array in stops.arrays.items():
        np.testing.assert_array_equal(model[name], array.numpy())
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == 5
    checkpoint = CheckpointFolder(tmp_path / "run" / "checkpoint").load()
    assert (checkpoint.server_round if checkpoint else 0) == (5 // every * every if every else 0)


@pytest.mark.slow
def test_a_checkpoint_is_of_its_own_round_however_late_it_is_written(configured, tmp_path, monkeypatch):
    """The rule's state and the clients' memories have moved on by then."""
    goes_on, run = threading.Event(), BackgroundWriter._run

    def late(self, job):
        assert goes_on.wait(60)
        run(self, job)

    class Late(Observer):
        def on_round(self, result):
            assert not (tmp_path / "late" / "checkpoint" / "server.safetensors").exists()
            if result.server_round == 3:
                goes_on.set()
                raise KeyboardInterrupt

    simulate(Federation(configured(**BITS, rounds=4)), tmp_path / "whole", None)
    monkeypatch.setattr(BackgroundWriter, "_run", late)
    with pytest.raises(KeyboardInterrupt):
        simulate(
            Federation(configured(**BITS, rounds=4, checkpoint_every=2)), tmp_path / "late", None, [Late()]
        )
    assert CheckpointFolder(tmp_path / "late" / "checkpoint").load().server_round == 2
    simulate(Federation(configured(**BITS, rounds=4, resume=str(tmp_path / "late"))), tmp_path / "late", None)
    whole, late = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "late"))
    assert whole == late


@pytest.mark.parametrize("refused", ["server.safetensors", "client-1", "model.safetensors"])
def test_a_full_disk_is_one_line_and_the_checkpoint_before_stands(configured, tmp_path, monkeypatch, refused):
    """Nothing is written after what could not be: the server's file names complete clients only."""
    replace, count = os.replace, []

    def full(source, target):
        if target.name.startswith(refused):
            count.append(target)
            if len(count) > 2:
                raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UserError, match="run-dir: cannot write to '.*run' .*No space left") as caught:
        simulate(Federation(configured(**BITS, rounds=9)), tmp_path / "run", None)
    assert "\n" not in str(caught.value)
    assert len(count) == 3
    assert CheckpointFolder(tmp_path / "run" / "checkpoint").load().server_round == 2
    monkeypatch.undo()
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("private", [False, True])
def test_a_disk_that_is_full_when_a_run_is_resumed_is_one_line(
    private, cache_dir, tmp_path, monkeypatch, capsys, pictures_not_drawn
):  # fmt: skip
    """Whichever file it is that cannot be written; with room again the run goes on."""
    words = f"--backend inline --local-epochs 1 --batch-size 240 --cache-dir {cache_dir}".split()
    if private:
        words += ["--dp", "client", "--dp-noise", "1", "--dp-delta", "0.1"]
    assert cli.main([*words, "--rounds", "1", "--run-dir", str(tmp_path / "run")]) == 0
    replace, refused = os.replace, []

    def full(source, target):
        if target.name not in refused:
            refused.append(target.name)
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", full)
    while True:
        known = len(refused)
        status = cli.main(["--resume", str(tmp_path / "run"), "--rounds", "2"])
        errors = capsys.readouterr().err
        if len(refused) == known:
            break
        assert status == 2, refused
        assert errors.count("error: ") == 1, errors
        assert "No space left on device" in errors
        assert "Traceback" not in errors
    assert status == 0 or "is complete" in errors, errors
    assert {"config.json", "metrics.csv", "clients.csv", "failures.csv", "server.safetensors"} <= set(refused)


def test_the_writer_holds_so_much_and_fails_for_good():
    writer, done, goes_on = BackgroundWriter(), [], threading.Event()
    writer.submit(lambda: goes_on.wait(60), 2**28)
    writer.submit(lambda: done.append("one"), 1)
    threading.Timer(0.2, goes_on.set).start()
    writer.submit(lambda: done.append("two"), 1)  # waits for the first: more is held than may be
    assert goes_on.is_set()
    writer.submit(lambda: 1 // 0, 1)
    writer.submit(lambda: done.append("never"), 1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            writer.wait()
    with pytest.raises(ZeroDivisionError):
        writer.close()
    assert done == ["one", "two"]


def test_a_large_table_is_written_by_columns_too_and_read_alike(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run", summary_of([0.5, 0.7]))
    (folder / "clients.csv").unlink()
    log = CsvLog(folder / "clients.csv", ["round", "phase", "partition", "loss", "accuracy", "never"])
    phases, third = ("train", "evaluate", "new"), 1 / 3
    for number in (1, 2):
        log.append(
            [
                {"round": number, "phase": phase, "partition": i, "loss": third / number, "accuracy": value}
                for i, phase in enumerate(phases)
                for value in ([third + i] if i else [""])
            ]
        )
    log.write_columns()
    assert not (folder / "clients.parquet").exists()
    table, points = Result(folder).clients, Run.read(folder).client_points()
    assert points == {1: {1: third + 1, 2: third + 1}}

    monkeypatch.setattr(files, "LARGE", 1)
    log.write_columns()
    (folder / "clients.csv").rename(folder / "elsewhere.csv")
    pd.testing.assert_frame_equal(Result(folder).clients, table, check_exact=True, check_dtype=False)
    assert Run.read(folder).client_points() == points

    CsvLog(folder / "clients.csv", log.columns)
    assert not (folder / "clients.parquet").exists()

"""Going on with a run that was stopped: the same bits, and one process at a time."""

import contextlib
import hashlib
import json
import os
import shutil
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from flwr.app import Array, ArrayRecord
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fedbn_flower import cli
from fedbn_flower.cli import jobs
from fedbn_flower.core.errors import UserError
from fedbn_flower.records.checkpoint import Checkpoint
from fedbn_flower.results import run_directory as place
from fedbn_flower.results.checkpoints.checkpoint_folder import BackgroundWriter, CheckpointFolder
from fedbn_flower.results.resume import as_before
from fedbn_flower.results.run_directory import run_folder_locked
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.site import memory_folder

from .written import csv_rows

SAMPLED = {"partition": "dirichlet:0.5", "num_clients": 6, "fraction_train": 0.5, "target": "accuracy=0.05"}


@pytest.fixture(scope="module")
def made(configured, tmp_path_factory, pictures_never_drawn, draws_always_few):
    """A run of four rounds, and one that was stopped after two of them."""
    folder = tmp_path_factory.mktemp("resume")
    for name, rounds in (("whole", 4), ("parts", 2)):
        simulate(Federation(configured(**SAMPLED, rounds=rounds)), folder / name, None)
    return folder


@pytest.fixture
def parts(made, tmp_path):
    """A copy of the one that was stopped."""
    return shutil.copytree(made / "parts", tmp_path / "parts")


@pytest.fixture
def go_on(configured, parts):
    def run(rounds=4):
        simulate(Federation(configured(**SAMPLED, rounds=rounds, resume=str(parts))), parts, None)

    return run


def test_a_resumed_run_goes_on_counting_and_ignores_files_of_an_unfinished_checkpoint(made, parts, go_on):
    clients = parts / "checkpoint" / "clients"
    for path in list(clients.iterdir()):
        later = path.name.replace("-000002.", "-000003.").replace("-000001.", "-000003.")
        (clients / later).write_bytes(path.read_bytes())
    with (parts / "metrics.csv").open("a") as file:
        file.write("3,0.1,3,0,0.5\n4")  # a finished round without a checkpoint, and a torn line
    go_on()
    assert (parts / "model.safetensors").read_bytes() == (made / "whole/model.safetensors").read_bytes()
    assert [r["round"] for r in csv_rows(parts / "metrics.csv")] == ["1", "2", "3", "4"]
    assert "site" not in csv_rows(parts / "clients.csv")[0]  # without names
    expected, got = (json.loads((f / "summary.json").read_text()) for f in (made / "whole", parts))
    assert got["rounds-to-target"]["mean"] < 3  # reached in the first part
    for key in ("bytes-sent", "bytes-received", "rounds-to-target", "failures"):  # of both parts
        assert got[key] == expected[key], key


@pytest.mark.slow
def test_a_checkpoint_that_knows_no_draws_goes_on_in_the_same_bits(made, parts, go_on):
    """As runs of version 0.2.0 left them."""
    assert CheckpointFolder(parts / "checkpoint").load().draws == {"train": 2, "evaluate": 2}
    server = parts / "checkpoint" / "server.safetensors"
    with safe_open(server, "numpy") as file:
        facts = json.loads(file.metadata()["facts"])
    del facts["draws"]
    save_file(load_file(server), server, {"facts": json.dumps(facts)})
    go_on()
    assert (parts / "model.safetensors").read_bytes() == (made / "whole/model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_checkpoint_costs_what_changed_however_many_clients_there_are(configured, tmp_path, monkeypatch):
    """Three of six train in a round, and nobody evaluates: only they are loaded, and written when resumed.
    The folder is listed once a run. Beside its own memories a checkpoint keeps those before, should one be
    damaged: all have trained twice by then."""
    run, chosen = tmp_path / "run", SAMPLED | {"fraction_evaluate": 0.0, "client": "silobn"}
    clients, listed, glob = run / "checkpoint" / "clients", [], Path.glob

    def recorded(path, *pattern, **options):
        listed.append(path)
        return glob(path, *pattern, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", recorded)
        simulate(Federation(configured(**chosen, rounds=8)), run, None)
    assert listed.count(clients) == 1
    assert sorted(int(path.name.split("-")[1]) for path in clients.iterdir()) == sorted([*range(6)] * 2)
    before, loaded = set(clients.iterdir()), []
    unpack = memory_folder.unpack
    monkeypatch.setattr(memory_folder, "unpack", lambda p, facts: loaded.append(p) or unpack(p, facts))
    simulate(Federation(configured(**chosen, rounds=9, resume=str(run))), run, None)
    trained = {row["partition"] for row in csv_rows(run / "clients.csv") if row["round"] == "9"}
    assert len(trained) == 3
    assert {path.name.split("-")[1] for path in loaded} <= trained
    written = {path.name.split("-")[1] for path in set(clients.iterdir()) - before}
    assert written == trained


def test_a_client_file_that_is_damaged_is_reported_and_the_one_before_used(configured, tmp_path, caplog):
    """So is one that another client's was copied over. The batches tell of how many rounds a memory is."""
    run = tmp_path / "run"
    simulate(Federation(configured(rounds=3, num_clients=3, partition="iid", client="silobn")), run, None)

    def batches():
        checkpoints = CheckpointFolder(run / "checkpoint")
        memories = [checkpoints.memory(checkpoints.load(), partition) for partition in range(3)]
        return np.array([memory["local"]["2.num_batches_tracked"] for memory in memories])

    before = batches()
    zero, one, two = (max((run / "checkpoint" / "clients").glob(f"client-{i}-*")) for i in range(3))
    zero.write_bytes(zero.read_bytes()[:-8])
    shutil.copy(two, one)
    np.testing.assert_array_equal(batches() * 3, before * [2, 2, 3])
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [str(path) in line for path, line in zip((zero, one), sorted(warnings), strict=True)] == [True] * 2


def test_what_cannot_be_resumed_is_reported(parts, go_on):
    with pytest.raises(UserError, match="^resume: the run in .* is complete, with 2 rounds \\(use"):
        go_on(rounds=2)
    with pytest.raises(UserError, match="rounds: 1 is not allowed; expected more than the 2 done so far"):
        go_on(rounds=1)
    server = parts / "checkpoint" / "server.safetensors"
    server.write_bytes(server.read_bytes()[:100])
    with pytest.raises(UserError, match="resume: the checkpoint .* cannot be read"):
        go_on()


def test_inputs_are_standardised_as_when_the_run_began(configured, tmp_path):
    """Up to 0.2 the rows of clients that do not train were part of the mean."""
    table, run = tmp_path / "rows.csv", tmp_path / "run"
    table.write_text("site,x,y\n" + "".join(f"{'abc'[i % 3]},{i * i / 7},{i % 2}\n" for i in range(60)))
    keys = {"dataset": str(table), "partition": "natural:site", "num_clients": 3, "label_column": "y"}
    keys |= {"normalize": "true", "holdout_clients": 1, "model": "linear", "client": "shared"}
    simulate(Federation(configured(**keys, rounds=1)), run, None)
    simulate(Federation(configured(**keys, rounds=2, resume=str(run))), run, None)
    summary = json.loads((run / "summary.json").read_text())
    summary["normalization"]["feature-mean"] = [1.0]
    (run / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(UserError, match="resume: .* its inputs by other numbers than now: .* anew"):
        simulate(Federation(configured(**keys, rounds=3, resume=str(run))), run, None)


@pytest.mark.slow
def test_code_that_has_changed_is_warned_of(configured, tmp_path, caplog):
    """In `config.json` stand the digests of the files that keys name."""
    file = tmp_path / "of mine.py"
    file.write_text("from clients.objectives import Objective\n\n\nclass Mine(Objective):\n    pass\n")
    chosen = {"objective": f"{file}:Mine", "client": "shared", "partition": "iid"}
    simulate(Federation(configured(**chosen, rounds=1)), tmp_path / "run", None)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["code"] == {str(file): digest}

    def warnings_of(rounds):
        caplog.clear()
        config = configured(**chosen, rounds=rounds, resume=str(tmp_path / "run"))
        simulate(Federation(config), tmp_path / "run", None)
        return [r.getMessage() for r in caplog.records if "has changed since" in r.getMessage()]

    assert warnings_of(2) == []
    file.write_text(file.read_text() + "\n# another thought\n")
    (line,) = warnings_of(3)
    assert line.startswith(f"resume: {file} has changed since the run was started")


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    monkeypatch.setattr(place, "PATIENCE", 0.1)


def test_a_lock_that_is_let_go_of_in_time_is_waited_for(configured, tmp_path, monkeypatch):
    monkeypatch.setattr(place, "PATIENCE", 60.0)
    lock = FileLock(tmp_path / place.LOCK, thread_local=False)
    lock.acquire()
    threading.Timer(0.2, lock.release).start()
    with run_folder_locked(configured(resume=str(tmp_path)), tmp_path):
        assert not lock.is_locked


def test_a_folder_that_cannot_be_written_to_is_one_line(configured, tmp_path):
    (tmp_path / place.LOCK).mkdir()
    output = pytest.raises(UserError, match=f"^resume: cannot write to {str(tmp_path)!r}")
    with output, run_folder_locked(configured(resume=str(tmp_path)), tmp_path):
        pytest.fail("it has begun")


def test_a_checkpoint_is_made_without_a_further_copy_of_the_model(tmp_path):
    """Beside the file's content: a server has many models in memory as it is."""
    model = ArrayRecord({"weight": Array(np.zeros(2**21, np.float32))})
    checkpoint = Checkpoint(1, 1, model, {}, {}, "run", None, {})
    tracemalloc.start()
    with contextlib.closing(BackgroundWriter()) as writer:
        CheckpointFolder(tmp_path).save(checkpoint, [], writer)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 2**23 < most < 1.5 * 2**23


def test_what_a_killed_writer_left_is_taken_away_on_resume(parts, go_on):
    for folder in (parts, parts / "checkpoint" / "clients"):
        (folder / ".model.safetensors.0.tmp").write_text("half")
    go_on(rounds=3)
    assert not list(parts.rglob("*.tmp"))


def test_a_folder_belongs_to_one_process_which_is_reported_before_anything_starts(
    configured, parts, go_on, monkeypatch, capsys
):
    words = f"expected a folder that no running process writes to, as process {os.getpid()} does"
    with run_folder_locked(configured(resume=str(parts)), parts):
        with pytest.raises(UserError, match=words):
            go_on(rounds=3)
        monkeypatch.setattr(jobs, "simulate", lambda *_: pytest.fail("it has started"))
        assert cli.main(["--resume", str(parts), "--rounds", "3"]) == 2
    assert words in capsys.readouterr().err
    go_on(rounds=3)


@pytest.mark.parametrize(
    ("stored", "by"),
    [
        ({}, "pooled"),
        ({"fraction-evaluate": 0.0}, "auto"),
        ({"fraction-evaluate": 0.0, "eval-model": "local"}, "pooled"),
        ({"dp": "local"}, "auto"),
        ({"decide-by": "mean"}, "mean"),
    ],
)
def test_a_run_from_before_decide_by_goes_on_by_the_clients_metrics(stored, by):
    """Where clients have none, ``auto`` is the server's, as it was."""
    assert as_before(stored)["decide-by"] == by

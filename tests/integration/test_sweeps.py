"""Sweeps in processes side by side, killed (-9) or stopped, they end with the undisturbed table."""

import csv
import os
import shutil
import signal
import subprocess
import sys
from multiprocessing import resource_tracker

import pytest

from fedbn_flower import cli

from .deaths import snapshots
from .processes import LONG, ROOT, bits, processes_with, wait_for
from .test_kills import check_whole

pytest.importorskip("fedbn_flower.sweeps")

pytestmark = pytest.mark.slow

CELLS = ("--sweep", "client-lr=0.01,0.05", "--seed", "0,1")
SMALL = ("--local-epochs", 1, "--partition", "iid", "--client", "fedbn")


def table(folder):
    """What is compared: no seconds."""
    with (folder / "grid.csv").open() as file:
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]
    return rows, (folder / "grid.md").read_bytes()


def rounds_done(folder):
    return sum(max(0, path.read_text().count("\n") - 1) for path in folder.glob("*/metrics.csv"))


def start(arguments, environment):
    return subprocess.Popen(
        [sys.executable, "run_sim.py", *map(str, arguments)],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.usefixtures("pictures_not_drawn", "few_draws")
def test_killed_at_each_change_of_its_files_a_sweep_ends_with_the_same_table(
    tmp_path, cache_dir, monkeypatch
):  # fmt: skip
    """Of its own files, and where a run begins, makes its last checkpoint, and is done."""
    monkeypatch.chdir(tmp_path)
    whole, parts, left = (tmp_path / name for name in ("whole", "parts", "left"))
    job = ("--strategy", "fedavg,fedyogi", "--rounds", 1, "--local-epochs", 1)
    job = (*job, "--cache-dir", cache_dir, "--backend", "inline", "--run-dir", parts)
    changes = snapshots(parts, job, left)
    parts.rename(whole)
    own = ("experiment.json", "grid.csv", "grid.md", "config.json", "server.safetensors", ".done")
    tried = [place for place, change in enumerate(changes) if change.endswith(own)]
    assert len(tried) == 1 + 2 * 3 + 2 * 3
    for last in tried:
        (left / str(last)).rename(parts)
        check_whole(parts)
        again = ["--resume", parts] if (parts / "experiment.json").exists() else job
        assert cli.main([str(word) for word in again]) == 0, changes[last]
        assert table(parts) == table(whole), changes[last]
        names = [row["folder"] for row in table(whole)[0]]
        assert all(bits(parts / name) == bits(whole / name) for name in names), changes[last]
        shutil.rmtree(parts)


@pytest.mark.usefixtures("pictures_not_drawn")  # of those here
def test_killed_a_sweep_ends_with_the_same_table(tmp_path, cache_dir, marked_environment):
    """The undisturbed one runs in one process; the other two runs at a time, and whoever is killed alone
    takes what it started with it."""
    mark, environment = marked_environment
    common = (*CELLS, *SMALL, "--rounds", 4, "--cache-dir", cache_dir)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    words = (*common, "--backend", "inline", "--run-dir", whole)
    assert cli.main([str(word) for word in words]) == 0
    process = start([*common, "--workers", 2, "--run-dir", parts], environment)
    wait_for(lambda: rounds_done(parts) >= 4, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_for(lambda: not processes_with(mark))
    check_whole(parts)
    assert rounds_done(parts) < 4 * 4
    assert cli.main(["--resume", str(parts), "--backend", "inline"]) == 0
    assert table(parts) == table(whole)
    names = [row["folder"] for row in table(whole)[0]]
    assert len(names) == 4
    assert all(bits(parts / name) == bits(whole / name) for name in names)
    assert (parts / "grid.png").exists()


def test_a_process_that_is_killed_is_a_failed_run_and_the_others_go_on(
    tmp_path, cache_dir, marked_environment, monkeypatch, capsys, caplog
):  # fmt: skip
    """As a system does that is out of memory. And what all warn of is shown once."""
    mark, environment = marked_environment
    resource_tracker.ensure_running()  # this process's own: it stays
    for name in ("FEDBN_TEST", "PYTHONPATH"):
        monkeypatch.setenv(name, environment[name])
    (tmp_path / "own.py").write_text(
        "import os, signal\nfrom strategies import FedAvg\n\n\nclass Deadly(FedAvg):\n"
        "    def aggregate_train(self, server_round, replies):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    rows = "".join(f"{row},{row % 2}\n" for row in range(40))
    (tmp_path / "patients.csv").write_text(f"row,outcome\n{rows}")
    where = ("--workers", 2, "--cache-dir", cache_dir, "--run-dir", tmp_path / "g")
    where = (*where, "--dataset", tmp_path / "patients.csv", "--num-clients", 2, "--rounds", 1)
    words = ("--strategy", f"{tmp_path / 'own.py'}:Deadly,fedavg,fedyogi", "--seed", 0, *SMALL, *where)
    assert cli.main([str(word) for word in words]) == 1
    rows, _ = table(tmp_path / "g")
    assert [row["status"] for row in rows] == ["its process ended: SIGKILL", "ok", "ok"]
    errors = capsys.readouterr().err
    assert "own.Deadly-fedbn-plain-seed0 failed: its process ended: SIGKILL\n" in errors
    assert "Traceback" not in errors
    assert caplog.text.count("columns: ids? 'row'") == 1
    assert not processes_with(mark)


def test_a_sweep_that_is_stopped_keeps_what_was_done(tmp_path, cache_dir, marked_environment):
    mark, environment = marked_environment
    place = tmp_path / "g"
    words = ["--seed", "0,1,2,3", "--rounds", 100000, "--workers", 2, "--cache-dir", cache_dir]
    process = start([*words, "--run-dir", place], environment)
    wait_for(lambda: sum(p.read_text().count("\n") > 3 for p in place.glob("*/metrics.csv")) == 2, process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert errors == (
        f"interrupted; what was done so far is in {place}; to go on with it: "
        f"python run_sim.py --resume {place}\n"
    )
    assert not processes_with(mark)
    begun = [path.parent for path in place.glob("*/metrics.csv")]
    assert len(begun) == 2
    assert all((folder / "summary.json").exists() for folder in begun)
    assert all((folder / "curves.png").exists() for folder in begun)
    assert (place / "grid.png").exists()


def test_stopped_while_its_processes_start_a_sweep_says_one_line(tmp_path, cache_dir, marked_environment):
    mark, environment = marked_environment
    place = tmp_path / "g"
    process = start(
        ["--seed", "0,1", "--workers", 2, "--cache-dir", cache_dir, "--run-dir", place], environment
    )
    # Once the sweep has begun: what is imported before may have a short-lived process of its own.
    wait_for(lambda: (place / "experiment.json").exists() and len(processes_with(mark)) > 1, process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 130
    assert errors.count("\n") == 1, errors
    assert errors.startswith("interrupted; what was done so far is in")
    assert not processes_with(mark)

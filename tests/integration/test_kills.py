"""run_sim.py killed (-9) at changes of a file and with its workers, and resumed: the same bits, and no file
half-written."""

import csv
import json
import shutil
import signal
import subprocess
import sys

import pytest
from safetensors import safe_open

from fedbn_flower import cli

from .deaths import first_and_last, snapshots
from .processes import LONG, ROOT, bits, processes_with, wait_for

pytestmark = pytest.mark.slow

JOB = ("--partition", "dirichlet:0.5", "--num-clients", 6, "--fraction-train", 0.5)


def check_whole(folder):
    """Every file that is there is complete."""
    for path in folder.rglob("*"):
        if path.name.startswith("."):
            continue  # what a killed writer left beside its file
        if path.suffix == ".safetensors":
            with safe_open(path, "np") as file:
                assert all(file.get_tensor(name) is not None for name in file.keys())  # noqa: SIM118
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".csv":
            text = path.read_text()
            assert text.endswith("\n")
            header, *rows = csv.reader(text.splitlines())
            assert all(len(row) == len(header) for row in rows)


def rounds_done(folder):
    metrics = folder / "metrics.csv"
    return metrics.read_text().count("\n") - 1 if metrics.exists() else 0


def same(parts, whole):
    """Whether a run's model and its clients' figures are those of the other."""
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (whole, parts)]
    return bits(parts) == bits(whole) and summaries[0]["clients"] == summaries[1]["clients"]


def test_killed_at_each_change_of_a_file_a_run_ends_in_the_same_bits(
    tmp_path, cache_dir, monkeypatch, capsys, pictures_not_drawn, few_draws
):  # fmt: skip
    """Before the first and the last of each kind of change: a file's replacement, its removal, a row that is
    added. With patience there are two folders of checkpoints."""
    monkeypatch.chdir(tmp_path)
    job = ("--num-clients", 2, "--partition", "iid", "--client", "fedbn", "--rounds", 3, "--local-epochs", 1)
    job = (*job, "--patience", 3, "--val-fraction", 0.1, "--cache-dir", cache_dir, "--backend", "inline")
    whole, parts, left = (tmp_path / name for name in ("whole", "parts", "left"))
    job = (*job, "--run-dir", parts)
    changes = snapshots(parts, job, left)
    parts.rename(whole)
    assert {change.split("-")[0] for change in changes} >= {
        "replace checkpoint/clients/client", "replace best/server.safetensors", "append metrics.csv",
        "replace summary.json", "remove best/clients/client",
    }  # fmt: skip
    for last in first_and_last(changes):
        (left / str(last)).rename(parts)
        check_whole(parts)
        arguments = ["--resume", parts]
        if not (parts / "config.json").exists():  # nothing was begun: the folder is no run's
            shutil.rmtree(parts)
            arguments = job
        status = cli.main([str(word) for word in arguments])
        output = capsys.readouterr().err
        assert status == 0 or f"the run in {str(parts)!r} is complete" in output, (changes[last], output)
        assert same(parts, whole), changes[last]
        assert status or not list(parts.rglob(".*.tmp"))
        assert rounds_done(parts) == 3
        shutil.rmtree(parts)


MOVES = """
import os, signal, sys, time
from fedbn_flower import cli
from fedbn_flower.runtime.ray import auto_grid, background
auto_grid.START = 0.0
background.os.getloadavg = lambda: (0.0, 0.0, 0.0)
moved, phases = auto_grid.AutoGrid._moved, []

def dies(grid):
    while grid._pool.started and not grid._pool.ready and grid._work.server_round > 4:
        time.sleep(0.05)  # until the workers have started
    ray = moved(grid)
    phases.extend([ray] if ray else ())
    if len(phases) > 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return ray
auto_grid.AutoGrid._moved = dies
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.usefixtures("on_the_pool", "pictures_not_drawn", "few_draws")
def test_killed_with_its_workers_a_run_that_moved_to_ray_ends_in_the_same_bits(
    tmp_path, cache_dir, marked_environment
):  # fmt: skip
    """Rounds go on in its process while a Ray of its own starts, which ends with it. Resumed, it goes on with
    other workers."""
    pytest.importorskip("fedbn_flower.runtime.ray")
    mark, environment = marked_environment
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    common = (*JOB, "--rounds", 12, "--client", "silobn", "--checkpoint-every", 2, "--cache-dir", cache_dir)
    words = (*common, "--backend", "inline", "--run-dir", whole)
    assert cli.main([str(word) for word in words]) == 0

    killed = subprocess.run(
        [sys.executable, "-c", MOVES, *map(str, common), "--run-dir", str(parts)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONG,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    wait_for(lambda: not processes_with(mark))
    check_whole(parts)
    assert 2 < rounds_done(parts) < 12
    resumed = ("--resume", parts, "--cache-dir", cache_dir, "--backend", "ray", "--workers", 2)
    assert cli.main([str(word) for word in resumed]) == 0
    assert bits(parts) == bits(whole)
    first, *_, last = json.loads((parts / "summary.json").read_text())["runtime"]
    assert (first["backend"], last["backend"]) == ("inline", "ray")

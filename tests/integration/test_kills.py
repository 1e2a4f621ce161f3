"""run_sim.py killed (-9) at each change of a file and at any moment, and resumed: the same bits, and no file
half-written."""

import csv
import json
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from safetensors import safe_open

from fedbn_flower import cli

from .deaths import die, first_and_last, snapshots, start
from .processes import LONG, ROOT, bits, end, wait_for

pytestmark = pytest.mark.slow

JOB = ("--partition", "dirichlet:0.5", "--num-clients", 6, "--fraction-train", 0.5)
ROUNDS = 60


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


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_killed_at_each_change_of_a_file_a_run_ends_in_the_same_bits(
    tmp_path, cache_dir, monkeypatch, capsys, pictures_not_drawn, every
):  # fmt: skip
    """Before the first and the last of each kind of change: a file's replacement, its removal, a row that is
    added, where their files are copied; or before every single one, where a process dies. With patience there
    are two folders of checkpoints."""
    monkeypatch.chdir(tmp_path)
    job = ("--num-clients", 2, "--partition", "iid", "--client", "fedbn", "--rounds", 3, "--local-epochs", 1)
    job = (*job, "--patience", 3, "--val-fraction", 0.1, "--cache-dir", cache_dir, "--backend", "inline")
    whole, parts, left, log = (tmp_path / name for name in ("whole", "parts", "left", "log"))
    job = (*job, "--run-dir", parts)
    changes = snapshots(parts, job, left)
    parts.rename(whole)
    assert {change.split("-")[0] for change in changes} >= {
        "replace checkpoint/clients/client", "replace best/server.safetensors", "append metrics.csv",
        "replace summary.json", "remove best/clients/client",
    }  # fmt: skip
    tried = range(len(changes)) if every else first_and_last(changes)
    for last in tried:
        if every:
            die(parts, last, job, log)
        else:
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


@pytest.mark.exhaustive
def test_killed_at_ten_random_moments_a_run_ends_in_the_same_bits(tmp_path, cache_dir):
    """Half of the kills come while a file is being written, the others at any time."""
    where = ("--cache-dir", cache_dir, "--backend", "inline")
    whole, parts, log = tmp_path / "whole", tmp_path / "parts", tmp_path / "log"
    reference = start(*JOB, "--rounds", ROUNDS, "--run-dir", whole, *where, log=log)
    reference.join()
    assert reference.exitcode == 0, log.read_text()
    chance = random.Random(0)
    arguments = [*JOB, "--rounds", ROUNDS, "--run-dir", parts]
    kills = writing = 0
    while kills < 10:
        begun = rounds_done(parts)
        process = start(*arguments, *where, log=log)
        # Not before it has got somewhere: otherwise it might be killed at its start for ever.
        while rounds_done(parts) in (0, begun) and process.is_alive():
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.2))
        if kills % 2:
            while not list(parts.rglob(".*.tmp")) and process.is_alive():
                pass
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, log.read_text()
        kills += 1
        writing += bool(list(parts.rglob(".*.tmp")))
        check_whole(parts)
        arguments = ["--resume", parts]
    last = start(*arguments, *where, log=log)
    last.join()
    assert last.exitcode == 0, log.read_text()
    assert writing > 0
    assert not list(parts.rglob(".*.tmp"))
    assert same(parts, whole)
    assert rounds_done(parts) == ROUNDS


@pytest.mark.usefixtures("on_the_pool", "pictures_not_drawn")
def test_killed_with_its_workers_a_run_on_ray_ends_in_the_same_bits(tmp_path, cache_dir, marked_environment):
    """It has a Ray of its own, and goes on with other workers."""
    mark, environment = marked_environment
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    common = (*JOB, "--rounds", 12, "--cache-dir", cache_dir)
    words = (*common, "--backend", "inline", "--run-dir", whole)
    assert cli.main([str(word) for word in words]) == 0
    process = subprocess.Popen(
        [sys.executable, "run_sim.py", *map(str, common), "--backend=ray", "--workers=1", "--run-dir", parts],
        cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: rounds_done(parts) >= 3, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    end(mark, signal.SIGKILL)
    check_whole(parts)
    assert 3 <= rounds_done(parts) < 12
    assert cli.main(["--resume", str(parts), "--cache-dir", str(cache_dir)]) == 0
    assert bits(parts) == bits(whole)
    assert rounds_done(parts) == 12


MOVES = """
import os, signal, sys, time
from fedbn_flower import cli
from fedbn_flower.runtime.ray import auto_grid, background
auto_grid.START = 0.0
background.os.getloadavg = lambda: (0.0, 0.0, 0.0)
moved = auto_grid.AutoGrid._moved

def dies(grid):
    while grid._pool.started and not grid._pool.ready and grid._work.server_round > 4:
        time.sleep(0.05)  # until the workers have started
    ray = moved(grid)
    if ray:
        os.kill(os.getpid(), signal.SIGKILL)
    return ray
auto_grid.AutoGrid._moved = dies
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.usefixtures("pictures_not_drawn")
def test_killed_while_it_moves_to_ray_a_run_ends_in_the_same_bits(tmp_path, cache_dir, marked_environment):
    """Rounds go on here while the workers start. Killed as it moves, it begins here again."""
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
    end(mark, signal.SIGKILL)
    check_whole(parts)
    assert 2 < rounds_done(parts) < 12
    assert cli.main(["--resume", str(parts), "--cache-dir", str(cache_dir), "--workers", "1"]) == 0
    assert bits(parts) == bits(whole)
    assert json.loads((parts / "summary.json").read_text())["runtime"] == [
        {"from-round": 1, "backend": "inline"}
    ]

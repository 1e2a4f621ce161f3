"""A search killed (-9) at any moment, and on Ray: the same table."""

import multiprocessing
import random
import signal
import time

import pytest

from ..fedbn_flower.search.conftest import table
from .test_kills import run
from .test_runtimes import run_sim

pytestmark = pytest.mark.slow

JOB = ("--strategy", "fedadam", "--client", "fedbn", "--num-clients", 4, "--partition", "dirichlet:0.5",
       "--rounds", 6, "--search", "server-lr=1e-3..1", "--search", "batch-size=16..64", "--trials", 9)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache_dir):
    """The folder of the search that nothing stopped."""
    folder = tmp_path_factory.mktemp("search") / "whole"
    result = run_sim(*JOB, "--cache-dir", cache_dir, "--backend", "inline", "--run-dir", folder)
    assert result.returncode == 0, result.stderr
    assert {row["state"] for row in table(folder)} == {"complete", "pruned"}
    return folder


def test_killed_at_random_moments_a_search_ends_in_the_same_table(tmp_path, cache_dir, whole):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["run_sim", "optuna"])
    where = ("--cache-dir", cache_dir, "--backend", "inline")
    folder, log = tmp_path / "parts", tmp_path / "log"

    def rounds_done():
        return sum(file.read_bytes().count(b"\n") for file in folder.rglob("metrics.csv"))

    def start(*arguments):
        process = context.Process(target=run, args=([*arguments, *where], log))
        process.start()
        return process

    chance = random.Random(0)
    arguments, kills = [*JOB, "--run-dir", folder], 0
    while not (folder / "best/summary.json").exists():
        begun = rounds_done()
        process = start(*arguments)
        while rounds_done() <= begun and process.is_alive():
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 1))
        process.kill()
        process.join()
        assert process.exitcode in (-signal.SIGKILL, 0), log.read_text()
        kills += process.exitcode != 0
        arguments = ["--resume", folder]
    assert kills > 3
    last = start(*arguments)
    last.join()
    assert last.exitcode == 0, log.read_text()
    assert table(folder) == table(whole)
    assert (folder / "best/model.safetensors").read_bytes() == (whole / "best/model.safetensors").read_bytes()


def test_on_ray_it_is_the_same_table(tmp_path, cache_dir, whole):
    result = run_sim(*JOB, "--cache-dir", cache_dir, "--workers", 2, "--run-dir", tmp_path / "ray")
    assert result.returncode == 0, result.stderr
    assert table(tmp_path / "ray") == table(whole)

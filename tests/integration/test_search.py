"""Searches killed (-9) at any moment, and on Ray: the same table. References on Ray: the same bits."""

import json
import multiprocessing
import random
import signal
import time

import pytest

from ..fedbn_flower.search.conftest import table
from .test_kills import run
from .test_runtimes import bits, run_sim

pytestmark = pytest.mark.slow

JOB = (
    *("--strategy", "fedadam", "--client", "fedbn", "--num-clients", 4, "--partition", "dirichlet:0.5"),
    *("--rounds", 6, "--search", "server-lr=1e-3..1", "--search", "batch-size=16..64", "--trials", 9),
)


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
    while kills < 8:
        begun = rounds_done()
        process = start(*arguments)
        while rounds_done() <= begun and process.is_alive():
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.2))
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            break
        kills += 1
        arguments = ["--resume", folder]
    assert kills > 2, log.read_text()
    last = start(*arguments)
    last.join()
    assert last.exitcode == 0, log.read_text()
    assert table(folder) == table(whole)
    assert bits(folder / "best") == bits(whole / "best")


def test_on_ray_it_is_the_same_table(tmp_path, cache_dir, whole):
    result = run_sim(*JOB, "--cache-dir", cache_dir, "--workers", 2, "--run-dir", tmp_path / "ray")
    assert result.returncode == 0, result.stderr
    assert table(tmp_path / "ray") == table(whole)


@pytest.mark.parametrize("reference", ["alone", "pooled"])
def test_references_have_the_same_bits_on_ray(tmp_path, cache_dir, reference):
    job = ("--reference", reference, "--num-clients", 4, "--partition", "iid", "--rounds", 2)
    figures = []
    for backend in (("--backend", "inline"), ("--workers", 2)):
        folder = tmp_path / str(len(figures))
        result = run_sim(*job, *backend, "--cache-dir", cache_dir, "--run-dir", folder)
        assert result.returncode == 0, result.stderr
        figures.append(json.loads((folder / "summary.json").read_text())["clients"])
    assert figures[0] == figures[1]
    if reference == "pooled":
        assert bits(tmp_path / "0") == bits(tmp_path / "1")

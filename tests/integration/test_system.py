"""Stragglers, dropouts and clients that are not always there: the same on every runtime."""

import csv

import pytest

from .test_runtimes import bits, flwr_run, marked_environment, run_sim

pytestmark = pytest.mark.slow

__all__ = ["marked_environment"]


def answers(folder):
    """Who trained and evaluated when, and how many steps it did."""
    with (folder / "clients.csv").open() as file:
        return [(r["round"], r["phase"], r["partition"], r["local-steps"]) for r in csv.DictReader(file)]


@pytest.mark.parametrize(("fast", "drop"), [("off", "false"), ("auto", "true")])
def test_the_same_bits_on_every_runtime(fast, drop, tmp_path, cache_dir, marked_environment):
    """In lockstep (``auto``) too, on all runtimes that have it."""
    there = tmp_path / "there.csv"
    there.write_text("partition-id,from,to\n0,2,3\n4,1,1\n4,4,4\n")
    keys = {
        "strategy": "scaffold", "objective": "scaffold", "client": "fedbn", "partition": "dirichlet:0.5",
        "num-clients": 6, "rounds": 4, "fraction-train": 0.9, "stragglers": 0.5, "drop-stragglers": drop,
        "dropout": 0.2, "availability": there, "fast": fast,
        "cache-dir": cache_dir,
    }  # fmt: skip
    flags = [word for key, value in keys.items() for word in (f"--{key}", value)]
    for name, runtime in {
        "inline": ("--backend", "inline"),
        "one": ("--workers", 1),
        "two": ("--workers", 2),
    }.items():
        result = run_sim(*flags, *runtime, "--run-dir", tmp_path / name)
        assert result.returncode == 0, result.stderr
    folders = [tmp_path / name for name in ("inline", "one", "two")]
    if fast == "off":
        folders.append(tmp_path / "flower")
        plain = {"num-clients", "rounds", "fraction-train", "stragglers", "dropout", "drop-stragglers"}
        texts = {**keys, "run-dir": folders[-1]}
        run_config = " ".join(f"{k}={v}" if k in plain else f"{k}='{v}'" for k, v in texts.items())
        result = flwr_run(tmp_path, marked_environment[1], run_config, 6)
        assert (folders[-1] / "summary.json").exists(), result.stdout + result.stderr
    assert len({bits(folder) for folder in folders}) == 1
    found = [answers(folder) for folder in folders]
    assert found[1:] == found[:-1]
    assert len({steps for *_, steps in found[0]}) > 2

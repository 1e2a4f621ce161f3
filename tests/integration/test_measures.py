"""What a run tells of itself is the same on every runtime."""

import csv
import json

import pytest

from .test_runtimes import bits, flwr_run, marked_environment, run_sim  # noqa: F401

pytestmark = pytest.mark.slow

SETTINGS = {
    "strategy": "scaffold", "objective": "scaffold", "client": "fedbn", "partition": "dirichlet:1",
    "num-clients": 6, "holdout-clients": 2, "rounds": 6, "val-fraction": 0.2, "evaluate-every": 2,
    "patience": 3, "target-accuracy": 0.3, "eval-data": "local",
}  # fmt: skip
TIMES = {"seconds", "seconds-per-round", "seconds-split", "client-updates-per-second"}


def told(folder):
    """All that does not tell the time."""
    tables = [
        csv.DictReader((folder / name).open()) for name in ("metrics.csv", "clients.csv", "classes.csv")
    ]
    rows = [[{k: v for k, v in row.items() if "seconds" not in k} for row in table] for table in tables]
    summary = json.loads((folder / "summary.json").read_text())
    return bits(folder), rows, {key: value for key, value in summary.items() if key not in TIMES}


def test_on_every_runtime(tmp_path, cache_dir, marked_environment):  # noqa: F811
    """Inline and with one worker the answers are summed where they are made, with two they are not."""
    flags = [word for key, value in SETTINGS.items() for word in (f"--{key}", value)]
    for name, how in {
        "inline": ("--backend", "inline"),
        "one": ("--workers", 1),
        "two": ("--workers", 2),
    }.items():
        result = run_sim(*flags, *how, "--cache-dir", cache_dir, "--run-dir", tmp_path / name)
        assert result.returncode == 0, result.stderr
    keys = SETTINGS | {"cache-dir": str(cache_dir), "run-dir": str(tmp_path / "flower")}
    words = (f"{k}='{v}'" if isinstance(v, str) else f"{k}={v}" for k, v in keys.items())
    _, environment = marked_environment
    result = flwr_run(tmp_path, environment, " ".join(words), 6)
    assert (tmp_path / "flower" / "summary.json").exists(), result.stdout + result.stderr
    expected = told(tmp_path / "inline")
    for name in ("one", "two", "flower"):
        assert told(tmp_path / name) == expected
    assert expected[2]["bytes-received"] > 0
    assert len(expected[2]["new-clients"]["clients"]) == 2

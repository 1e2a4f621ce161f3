"""What a run tells of itself is the same on every runtime."""

import csv
import json

import pytest

from .processes import bits

pytestmark = pytest.mark.slow

SETTINGS = {
    "strategy": "scaffold", "objective": "scaffold", "client": "fedbn", "partition": "dirichlet:1",
    "num-clients": 6, "holdout-clients": 2, "rounds": 6, "val-fraction": 0.2, "evaluate-every": 2,
    "patience": 3, "target-accuracy": 0.3, "eval-data": "local",
}  # fmt: skip
TIMES = {"seconds", "seconds-per-round", "seconds-split", "client-updates-per-second"}
PLACE = {"runtime"}


def output(folder):
    """All that tells neither the time nor the place."""
    tables = [
        csv.DictReader((folder / name).open()) for name in ("metrics.csv", "clients.csv", "classes.csv")
    ]
    rows = [[{k: v for k, v in row.items() if "seconds" not in k} for row in table] for table in tables]
    summary = json.loads((folder / "summary.json").read_text())
    return bits(folder), rows, {key: value for key, value in summary.items() if key not in TIMES | PLACE}


def test_on_all_workers(on_all_workers):
    """Inline and with one worker the answers are summed where they are made, with two they are not."""
    expected, *others = map(output, on_all_workers(SETTINGS))
    assert others == [expected] * 2
    assert expected[2]["bytes-received"] > 0
    assert len(expected[2]["new-clients"]["clients"]) == 2


def test_under_flwr_run(under_flwr_run, tmp_path):
    """Of clients some of which are sampled, drop out, are late or are not there, with a loss of ours."""
    there = tmp_path / "there.csv"
    there.write_text("partition-id,from,to\n0,2,3\n3,1,1\n3,4,4\n")
    own = {"fraction-train": 0.9, "stragglers": 0.5, "dropout": 0.2, "availability": str(there)}
    own |= {"loss": "focal", "fast": "off"}
    expected, flower = map(output, under_flwr_run(SETTINGS | own))
    assert flower == expected
    assert len({row["local-steps"] for row in expected[1][1]}) > 2
    assert len(expected[2]["new-clients"]["clients"]) == 2

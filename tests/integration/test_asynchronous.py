"""A truly asynchronous run on real SuperNodes: one is killed, one is slow, one joins late."""

import csv
import json
import math
import os
import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.consortium.local import LocalFederation

from .hospital import rounds_done
from .processes import FORGETTING, LONG, start_flwr_run, wait_for
from .unequal import BEHIND, ROUNDS

pytestmark = pytest.mark.slow

KEYS = {
    "protocol": "fedbuff:2", "concurrency": 3, "num-clients": 4, "partition": "iid", "model": "mlp-bn",
    "rounds": ROUNDS, "evaluate-every": ROUNDS, "target": "accuracy=0.2",
}  # fmt: skip


def rows(folder, name):
    with (folder / name).open() as file:
        return list(csv.DictReader(file))


def test_who_dies_is_slow_or_late_costs_itself_only(tmp_path, cache_dir, undrawn_app):
    """Of four SuperNodes three train at once, and any two answers make a version."""
    run = tmp_path / "run"
    client = shutil.copy(Path(__file__).with_name("unequal.py"), tmp_path)
    keys = KEYS | {"client": f"{client}:Unequal", "cache-dir": str(cache_dir)}
    federation = LocalFederation(tmp_path / "federation", 3, restart_after=math.inf)
    federation.environment |= FORGETTING
    with federation:
        started = start_flwr_run(federation, undrawn_app, tmp_path, "run", **keys)
        wait_for((tmp_path / "waiting").exists, started)
        federation.start_supernode(3)
        wait_for(lambda: rounds_done(run) >= 2, started)
        os.killpg(federation.services["site-1"].process.pid, signal.SIGKILL)
        started.wait(LONG)
        output = (tmp_path / "run.log").read_text()
        assert list(federation.runs().values()) == ["finished:completed"], output
    assert "Traceback" not in output
    by_round = {number: {} for number in range(1, ROUNDS + 1)}
    for row in rows(run, "clients.csv"):
        if row["phase"] == "train":
            by_round[int(row["round"])][int(row["partition"])] = int(row["staleness"])
    assert all(len(answers) == 2 for answers in by_round.values()), by_round
    assert [number for number, answers in by_round.items() if 1 in answers] == [1]
    slow = [answers[2] for answers in by_round.values() if 2 in answers]
    assert 1 <= len(slow) < ROUNDS - 2  # most versions do without it
    assert max(slow) >= BEHIND
    assert sum(3 in answers for answers in by_round.values()) >= 2
    refused = rows(run, "failures.csv")
    assert {(row["partition"], row["phase"]) for row in refused} <= {("1", "train")}
    assert len(refused) <= 1
    assert all(int(row["round"]) > 2 for row in refused)
    metrics, summary = rows(run, "metrics.csv"), json.loads((run / "summary.json").read_text())
    assert [int(row["staleness-max"]) for row in metrics] == [max(a.values()) for a in by_round.values()]
    reached = summary["rounds-to-target"]["global"] or summary["rounds-to-target"]["mean"]
    costs = summary["costs-to-target"]["global"] or summary["costs-to-target"]["mean"]
    assert costs["seconds"] == pytest.approx(sum(float(r["seconds"]) for r in metrics[:reached]), abs=0.01)

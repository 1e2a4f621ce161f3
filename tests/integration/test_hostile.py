"""A SuperNode that lies costs itself its answers, and the other two nothing. A run that fails is told."""

import csv
import json
import re
from pathlib import Path

import pytest

from deploy.local_federation import ROOT, LocalFederation
from fedbn_flower import simulate

from .guide import OFFLINE
from .processes import bits

pytestmark = pytest.mark.slow

LIES = [("1", "train"), ("1", "evaluate"), ("2", "train"), ("2", "evaluate")]


def refused(folder):
    with (folder / "failures.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["partition"] for row in rows} == {"1"}
    return [(row["round"], row["phase"]) for row in rows]


def test_one_lying_supernode_among_three_and_a_run_that_fails(tmp_path, cache_dir, monkeypatch, capsys):
    """The run completes, refuses every lie, and ends in the bits of its simulation. Of another one, whose
    ``flwr run`` ends well, the federation tells that it did not."""
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    keys = {"client": f"{Path(__file__).with_name('liar.py')}:Liar", "partition": "iid", "num-clients": 3}
    keys |= {
        "rounds": 2,
        "weighting": "uniform",
        "cache-dir": str(cache_dir),
        "run-dir": str(tmp_path / "run"),
    }
    config = tmp_path / "run.toml"
    config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    with LocalFederation(tmp_path / "federation", supernodes=3) as federation:
        output = federation.run(["flwr", "run", ROOT, "--stream", "--run-config", config], quiet=True).stdout
        assert federation.all_complete(), output
        before = federation.runs()
        mistake = ["flwr", "run", ROOT, "--run-config", "strategy='fedyog'"]
        assert federation.run(mistake, quiet=True).returncode == 0
        assert not federation.all_complete(but=before)
        assert re.fullmatch(r"run \d+: finished:failed\n", capsys.readouterr().err)
    assert refused(tmp_path / "run") == LIES
    summary = (tmp_path / "run" / "summary.json").read_text()
    assert json.loads(summary, parse_constant=pytest.fail)["failures"] == len(LIES)
    reasons = (tmp_path / "run" / "failures.csv").read_text()
    assert "out of luck" in reasons
    assert "\x1b" not in reasons
    assert "owned" not in output + reasons
    assert "Traceback" not in output
    assert max(map(len, output.splitlines())) < 1000
    names = {key.replace("-", "_"): value for key, value in keys.items()}
    inline = simulate(**names | {"run_dir": tmp_path / "inline", "backend": "inline", "progress": False})
    assert refused(inline.folder) == LIES
    assert bits(tmp_path / "run") == bits(inline.folder)

"""fedbn-sim consortium try: SuperNodes on this machine, for one command."""

import csv
import json
import subprocess
from pathlib import Path

import pytest
from safetensors.numpy import load_file

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower import simulate
from fedbn_flower.consortium import local

from .guide import Guide
from .hospital import rounds_done
from .processes import ROOT, bits

LIAR = Path(__file__).with_name("liar.py")
NPY_HEADER = 128  # bytes
SUPERNODES = 2
LYING = {"client": f"{LIAR}:Liar", "partition": "iid", "weighting": "uniform", "freeze": "1"}
OF_THE_APP = {
    "strategy": "examples/signsgd.py:SignSGD",
    "objective": "examples/pull_to_zero.py:PullToZero",
}
LIES = [("1", "train"), ("1", "evaluate"), ("2", "train"), ("2", "evaluate")]


def refused(folder):
    with (folder / "failures.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["partition"] for row in rows} == {"1"}
    return [(row["round"], row["phase"]) for row in rows]


def simulated(keys, folder, **given):
    names = {"dataset": "digits"} | {key.replace("-", "_"): value for key, value in keys.items()}
    return simulate(**names | given, run_dir=folder, backend="inline", progress=False)


def test_every_lie_is_refused(tmp_path, cache_dir, pictures_not_drawn):
    result = simulated({**LYING, "cache-dir": str(cache_dir)}, tmp_path / "run", rounds=2)
    assert refused(result.folder) == LIES


@pytest.mark.slow
def test_a_federation_in_one_command_in_which_a_supernode_lies(
    tmp_path, cache_dir, monkeypatch, pictures_not_drawn
):  # fmt: skip
    """The guide's first command, with another client and a frozen layer, of which nothing travels; a rule and
    an objective from files of the app that Flower sends, their settings through ``settings``. Every lie is
    refused, also where an evaluation and a training are one answer, and the run ends well and in the bits of
    its simulation. Without a run-dir the results lie in the SuperLink's FLWR_HOME. Flower waits as it does by
    default, which other tests spare themselves."""
    guide = Guide(tmp_path)
    keys = {**LYING, **OF_THE_APP, "server-lr": 0.02, "cache-dir": str(cache_dir)}
    words = " ".join(f"{key}={value!r}" for key, value in keys.items())
    asked = '--run-config "rounds=2'
    assert asked in guide.blocks["user try"]
    written = f"--run-config \"rounds=2 {words} settings='decay=0.5 pull=0.1'"
    guide.blocks["user try"] = guide.blocks["user try"].replace(asked, written)
    output = guide.run("user try", "user")
    assert "SuperLink and 2 SuperNodes are up" in output
    assert "round 1: " in output
    (folder,) = (tmp_path / "user").glob("federation-*/superlink/flwr/fedbn-flower/runs/*")
    assert f"results are in {folder}" in output
    assert rounds_done(folder) == 2
    assert refused(folder) == LIES
    config = json.loads((folder / "config.json").read_text())
    assert (config["decay"], config["pull"], config["server-lr"]) == (0.5, 0.1, 0.02)
    summary = (folder / "summary.json").read_text()
    assert json.loads(summary, parse_constant=pytest.fail)["failures"] == 4
    reasons = (folder / "failures.csv").read_text()
    assert "out of luck" in reasons
    assert "\x1b" not in reasons
    assert "owned" not in output + reasons
    assert "Traceback" not in output
    assert max(map(len, output.splitlines())) < 1000
    monkeypatch.chdir(ROOT)
    inline = simulated(keys, tmp_path / "inline", rounds=2, decay=0.5, pull=0.1)
    assert refused(inline.folder) == LIES
    assert bits(folder) == bits(inline.folder)
    entries = load_file(folder / "model.safetensors")
    frozen = {name for name in entries if name.startswith("1.")}
    assert len(frozen) == 2
    sent = sum(NPY_HEADER + entry.nbytes for name, entry in entries.items() if name not in frozen)
    with (folder / "metrics.csv").open() as file:
        times = [int(row["bytes-sent"]) / (SUPERNODES * sent) for row in csv.DictReader(file)]
    assert times == [1, 2]  # the last round is evaluated by itself


@pytest.mark.parametrize(
    ("command", "complete", "status"), [(0, True, 0), (0, False, 1), (3, True, 3), (3, False, 3)]
)
def test_its_exit_status_is_the_commands_or_reports_a_run_that_failed(
    tmp_path, monkeypatch, command, complete, status
):
    """What the federation says of its runs is `test_runtimes`'s."""
    asked = []

    class Federation:
        def __init__(self, folder, *settings):
            self.folder = folder

        def __enter__(self):
            return self

        def __exit__(self, *_):
            asked.append("ended")

        def runs(self):
            return {"1": "finished:failed"}

        def run(self, words):
            asked.append(words)
            return subprocess.CompletedProcess(words, command)

        def all_complete(self, but):
            asked.append(but)
            return complete

    monkeypatch.setattr(local, "LocalFederation", Federation)
    monkeypatch.setattr(local.signal, "signal", lambda *_: None)
    assert local.try_it(["--folder", str(tmp_path), "--", "flwr", "run"]) == status
    assert asked[0] == ["flwr", "run"]
    assert asked[1:-1] == ([] if command else [{"1": "finished:failed"}])
    assert asked[-1] == "ended"

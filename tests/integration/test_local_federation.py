"""What a federation of one command, ``fedbn-sim consortium try``, says of its runs; and clients that lie.

It is started by `test_wheel`.
"""

import csv
import json
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from safetensors.numpy import load_file

pytest.importorskip("fedbn_flower.consortium")

from fedbn_flower.config.making import run_config
from fedbn_flower.consortium import local
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from tests.fedbn_flower.supernodes import SuperNodes, run_app

from .guide import blocks
from .processes import ROOT, bits

LIAR = Path(__file__).with_name("liar.py")
NPY_HEADER = 128  # bytes
CLIENTS = 2
LYING = {"client": f"{LIAR}:Liar", "partition": "iid", "weighting": "uniform", "freeze": "1"}
LIES = [("1", "train"), ("1", "evaluate"), ("2", "train"), ("2", "evaluate")]


def rows(folder, name):
    with (folder / name).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("pictures_not_drawn")
def test_every_lie_is_refused_and_told_in_a_line_that_no_terminal_reads(configured, tmp_path, caplog):
    """Also where an evaluation and a training are one answer, as at SuperNodes: the run ends well and in the
    same bits. Of a frozen layer nothing travels."""
    here, there = (configured(**LYING, num_clients=CLIENTS, run_dir=str(tmp_path / n)) for n in ("a", "b"))
    simulate(Federation(here), tmp_path / "a", None)
    run_app(there, SuperNodes(there, tmp_path / "state"))
    for folder in (tmp_path / "a", tmp_path / "b"):
        refused = rows(folder, "failures.csv")
        assert {row["partition"] for row in refused} == {"1"}
        assert [(row["round"], row["phase"]) for row in refused] == LIES
        reasons = (folder / "failures.csv").read_text()
        assert "out of luck" in reasons
        assert "\x1b" not in reasons
        assert "owned" not in reasons + caplog.text
        summary = (folder / "summary.json").read_text()
        assert json.loads(summary, parse_constant=pytest.fail)["failures"] == 4
    assert max(map(len, caplog.text.splitlines())) < 1000
    assert bits(tmp_path / "a") == bits(tmp_path / "b")
    entries = load_file(tmp_path / "b" / "model.safetensors")
    frozen = {name for name in entries if name.startswith("1.")}
    assert len(frozen) == 2
    sent = sum(NPY_HEADER + entry.nbytes for name, entry in entries.items() if name not in frozen)
    times = [int(row["bytes-sent"]) / (CLIENTS * sent) for row in rows(tmp_path / "b", "metrics.csv")]
    assert times == [1, 2]  # the last round is evaluated by itself


@pytest.mark.parametrize(
    ("command", "complete", "status"), [(0, True, 0), (0, False, 1), (3, True, 3), (3, False, 3)]
)
def test_its_exit_status_is_the_commands_or_reports_a_run_that_failed(
    tmp_path, monkeypatch, command, complete, status
):
    """Of the guide's first command, whose keys are a run's. What the federation says of its runs is
    `test_one_flwr_run`'s."""
    asked = []

    class LocalFederation:
        def __init__(self, folder, sites, *settings):
            self.folder = folder
            asked.append(sites)

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

    monkeypatch.setattr(local, "LocalFederation", LocalFederation)
    monkeypatch.setattr(local.signal, "signal", lambda *_: None)
    guide = blocks((ROOT / "docs" / "deployment.md").read_text())
    words = shlex.split(guide["user try"])
    assert words[:3] == ["fedbn-sim", "consortium", "try"]
    assert local.try_it(["--folder", str(tmp_path), *words[3:]]) == status
    sites, (*run, keys) = asked[:2]
    assert run == ["flwr", "run", ".", "--stream", "--run-config"]
    config = run_config(tomllib.loads(keys.replace(" ", "\n")))
    assert (sites, config.num_clients, config.dataset) == (CLIENTS, CLIENTS, "digits")
    assert asked[2:-1] == ([] if command else [{"1": "finished:failed"}])
    assert asked[-1] == "ended"

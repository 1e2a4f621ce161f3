"""Algorithms from files under Flower's simulation.

On SuperNodes, and on Ray in any folder, they are `test_wheel`'s.
"""

import json

import pytest

from fedbn_flower import cli

from .processes import ROOT, bits

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def run_inline(*arguments):
    """The command line in this process."""
    assert cli.main([*map(str, arguments), "--backend", "inline"]) == 0


def test_examples_under_flwr_run(tmp_path, cache_dir, flwr_run, monkeypatch):
    """They are in the app that Flower sends; a setting that it does not know goes through ``settings``."""
    names = {
        "strategy": "examples/signsgd.py:SignSGD",
        "client": "examples/fedper.py:FedPer",
        "objective": "examples/pull_to_zero.py:PullToZero",
        "dataset": "examples/own_kind.py:Laboratory",
    }
    common = {"rounds": 2, "server-lr": 0.02, "cache-dir": cache_dir}
    common |= {"partition": "natural:client", "num-clients": 3}
    own = {"settings": "decay=0.5 pull=0.1", "run-dir": tmp_path / "flower"}
    output = flwr_run({**names, **common, **own}, 3)
    assert (tmp_path / "flower" / "summary.json").exists(), output
    config = json.loads((tmp_path / "flower" / "config.json").read_text())
    assert (config["decay"], config["pull"], config["server-lr"]) == (0.5, 0.1, 0.02)
    monkeypatch.chdir(ROOT)
    flags = [word for key, value in {**names, **common}.items() for word in (f"--{key}", value)]
    run_inline(*flags, "--decay", 0.5, "--pull", 0.1, "--run-dir", tmp_path / "inline")
    assert bits(tmp_path / "flower") == bits(tmp_path / "inline")

"""Algorithms from files under the real runtimes: Ray, in any folder, and ``flwr run``."""

import json
import shutil
import subprocess
import sys

import pytest

from fedbn_flower import cli

from .processes import ROOT, bits, run_sim

pytestmark = pytest.mark.slow

OWN = (ROOT / "tests" / "fedbn_flower" / "api" / "own_objects.py").read_text()


SMALL = ("--partition", "dirichlet:0.5", "--num-clients", 5, "--fraction-train", 0.6)


def run_inline(*arguments):
    """The command line in this process."""
    assert cli.main([*map(str, arguments), "--backend", "inline"]) == 0


def test_a_rule_from_a_file_outside_the_checkout_on_ray(tmp_path, cache_dir):
    """Begun in this process, and gone on with on Ray, from the folder alone."""
    (tmp_path / "my.py").write_text(OWN)
    common = (*SMALL, "--strategy", f"{tmp_path}/my.py:Scaled", "--scale", 0.5, "--cache-dir", cache_dir)
    run_inline(*common, "--rounds", 3, "--run-dir", tmp_path / "inline")
    run_inline(*common, "--rounds", 1, "--run-dir", tmp_path / "ray")
    result = run_sim("--resume", tmp_path / "ray", "--rounds", 3, "--backend", "ray")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "ray" / "config.json").read_text())["scale"] == 0.5
    assert bits(tmp_path / "inline") == bits(tmp_path / "ray")


def test_installed_it_runs_in_any_folder_with_files_and_packages_there(
    tmp_path, cache_dir, marked_environment
):  # fmt: skip
    """Without the checkout: the packages alone, as they lie in site-packages."""
    site, here = tmp_path / "site", tmp_path / "here"
    for package in ("fedbn_flower", "strategies", "clients"):
        shutil.copytree(ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
    here.mkdir()
    (here / "own.py").write_text(OWN)
    (here / "package").mkdir()
    (here / "package" / "rules.py").write_text(OWN)
    door = (
        f"import sys; sys.path[0] = {str(site)!r}; from fedbn_flower.cli import main\n"
        "for backend in ('ray', 'inline'):\n"
        "    assert main([*sys.argv[1:], '--backend', backend, '--run-dir', backend]) == 0"
    )
    names = (
        "--strategy",
        "package.rules:Scaled",
        "--client",
        "own.py:KeepsBiases",
        "--objective",
        "own.py:Pull",
    )
    common = ("--rounds", 3, "--scale", 0.5, "--pull", 0.1, "--cache-dir", cache_dir, "--workers", 2)
    result = subprocess.run(
        [sys.executable, "-c", door, *map(str, (*names, *SMALL, *common))],
        cwd=here, env=marked_environment[1], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for backend in ("ray", "inline"):
        assert json.loads((here / backend / "summary.json").read_text())["failures"] == 0
    assert bits(here / "ray") == bits(here / "inline")


def test_examples_under_flwr_run(tmp_path, cache_dir, flwr_run, monkeypatch):
    """They are in the app that Flower sends; a setting that it does not know goes through ``settings``."""
    names = {
        "strategy": "examples/signsgd.py:SignSGD",
        "client": "examples/fedper.py:FedPer",
        "objective": "examples/pull_to_zero.py:PullToZero",
    }
    common = {"rounds": 2, "server-lr": 0.02, "cache-dir": cache_dir}
    own = {"settings": "decay=0.5 pull=0.1", "run-dir": tmp_path / "flower"}
    output = flwr_run({**names, **common, **own}, 2)
    assert (tmp_path / "flower" / "summary.json").exists(), output
    config = json.loads((tmp_path / "flower" / "config.json").read_text())
    assert (config["decay"], config["pull"], config["server-lr"]) == (0.5, 0.1, 0.02)
    monkeypatch.chdir(ROOT)
    flags = [word for key, value in {**names, **common}.items() for word in (f"--{key}", value)]
    run_inline(*flags, "--decay", 0.5, "--pull", 0.1, "--run-dir", tmp_path / "inline")
    assert bits(tmp_path / "flower") == bits(tmp_path / "inline")

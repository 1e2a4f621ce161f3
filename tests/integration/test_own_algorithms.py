"""Algorithms from files under the real runtimes: Ray, in any folder, and ``flwr run``."""

import json
import shutil
import subprocess
import sys

import pytest

from .test_runtimes import ROOT, SMALL, bits, flwr_run, marked_environment, run_sim  # noqa: F401

pytestmark = pytest.mark.slow

OWN = (ROOT / "tests" / "fedbn_flower" / "own_objects.py").read_text()


def test_a_rule_from_a_file_outside_the_checkout_on_ray(tmp_path, cache_dir):
    (tmp_path / "my.py").write_text(OWN)
    common = (*SMALL, "--strategy", f"{tmp_path}/my.py:Scaled", "--scale", 0.5, "--cache-dir", cache_dir)
    for name, backend in (("inline", "inline"), ("ray", "ray"), ("parts", "ray")):
        rounds = ("--rounds", 1) if name == "parts" else ()
        arguments = [*common[2:], *(rounds or common[:2]), "--backend", backend]
        result = run_sim(*arguments, "--run-dir", tmp_path / name)
        assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "ray" / "config.json").read_text())["scale"] == 0.5
    result = run_sim("--resume", tmp_path / "parts", "--rounds", 3)
    assert result.returncode == 0, result.stderr
    assert len({bits(tmp_path / name) for name in ("inline", "ray", "parts")}) == 1


def test_installed_it_runs_in_any_folder_with_files_and_packages_there(
    tmp_path,
    cache_dir,
    marked_environment,  # noqa: F811
):
    """Without the checkout: the packages alone, as they lie in site-packages."""
    site, here = tmp_path / "site", tmp_path / "here"
    for package in ("fedbn_flower", "strategies", "clients"):
        shutil.copytree(ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
    here.mkdir()
    (here / "own.py").write_text(OWN)
    (here / "package").mkdir()
    (here / "package" / "rules.py").write_text(OWN)
    door = f"import sys; sys.path[0] = {str(site)!r}; from fedbn_flower.cli import main; sys.exit(main())"
    names = (
        "--strategy",
        "package.rules:Scaled",
        "--client",
        "own.py:KeepsBiases",
        "--objective",
        "own.py:Pull",
    )
    common = (*names, *SMALL, "--scale", 0.5, "--pull", 0.1, "--cache-dir", cache_dir, "--workers", 2)
    for backend in ("ray", "inline"):
        arguments = map(str, (*common, "--backend", backend, "--run-dir", backend))
        result = subprocess.run(
            [sys.executable, "-c", door, *arguments],
            cwd=here, env=marked_environment[1], capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert json.loads((here / backend / "summary.json").read_text())["failures"] == 0
    assert bits(here / "ray") == bits(here / "inline")


def test_examples_under_flwr_run(tmp_path, cache_dir, marked_environment):  # noqa: F811
    """They are in the app that Flower sends; a setting that it does not know goes through ``settings``."""
    names = {
        "strategy": "examples/signsgd.py:SignSGD",
        "client": "examples/fedper.py:FedPer",
        "objective": "examples/pull_to_zero.py:PullToZero",
    }
    run_config = " ".join(f"{key}='{name}'" for key, name in names.items())
    run_config += f" rounds=2 server-lr=0.02 settings='decay=0.5 pull=0.1' cache-dir='{cache_dir}'"
    result = flwr_run(tmp_path, marked_environment[1], f"{run_config} run-dir='{tmp_path / 'flower'}'", 2)
    assert (tmp_path / "flower" / "summary.json").exists(), result.stdout + result.stderr
    config = json.loads((tmp_path / "flower" / "config.json").read_text())
    assert (config["decay"], config["pull"], config["server-lr"]) == (0.5, 0.1, 0.02)
    flags = [word for key, name in names.items() for word in (f"--{key}", name)]
    given = ("--rounds", 2, "--server-lr", 0.02, "--decay", 0.5, "--pull", 0.1, "--cache-dir", cache_dir)
    result = run_sim(*flags, *given, "--backend", "inline", "--run-dir", tmp_path / "inline")
    assert result.returncode == 0, result.stderr
    assert bits(tmp_path / "flower") == bits(tmp_path / "inline")

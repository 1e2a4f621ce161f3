"""Annexes: with any of their folders taken away, and with all of them, the rest works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedbn_flower.annexes import ANNEXES
from fedbn_flower.config.keys import RUN_KEYS

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("fedbn_flower", "strategies", "clients", "run_sim.py", "pyproject.toml", "README.md")
SMALL = ("--backend", "inline", "--rounds", "2", "--local-epochs", "1")
VALUES = {
    **{"attack": "sign-flip:1", "attackers": "0.3", "inspect": "true", "track": "tensorboard"},
    **{"recalibrate": "temperature", "subgroups": "sex"},
    **{"secagg": "on", "secagg-bits": "8", "secagg-threshold": "2", "secagg-min": "2"},
    **{"concurrency": "2", "mixing": "0.5", "protocol": "fedbuff:2"},
    **{"spacing": "2", "window": "0..400"},
}
"""A value of a key that asks for an annex."""
LINES = {
    "clinic": [["--dataset", "nifti"], ["--dataset", "dicom"]],
    "search": [["--search", "client-lr=0.01,0.1"]],
    "study": [["export", "run", "--to", "methods"]],
}
"""What else asks for one, but its commands."""
FILES = ("nifti/a/1.nii.gz", "dicom/a/1.dcm")
CORE = (
    "tests/strategies/messages",
    "tests/fedbn_flower/site/test_ledger.py",
    "tests/fedbn_flower/extensions/test_keys.py",
)
"""Some of the tests of the rest."""

SITE = """
import sys
from flwr.app import Message, RecordDict
from fedbn_flower import client_app
from fedbn_flower.core.ground import wire
from fedbn_flower.runtime.grid import identify_process, node_context
sys.argv = ["flwr-clientapp"]
identify_process()
node = node_context(1, 2, {})
answer = client_app.app(Message(RecordDict(), node.node_id, wire.QUERY_PARTITION_ID), node)
print(dict(answer.content[wire.PARTITION]))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A function that returns a copy of the project without some of its annexes."""

    def without(*annexes):
        folder = tmp_path_factory.mktemp("-".join(annexes)[:40])
        for part in PARTS:
            if (ROOT / part).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=ignored)
            else:
                shutil.copy(ROOT / part, folder / part)
        for name in annexes:
            shutil.rmtree(folder / "fedbn_flower" / name)
        for path in FILES:
            (folder / path).parent.mkdir(parents=True)
            (folder / path).touch()
        return folder

    return without


def command(folder, *arguments):
    line = [sys.executable, "run_sim.py", *map(str, arguments)]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=300)


def check_all_works(folder):
    listed = command(folder, "--list", "all")
    assert listed.returncode == 0, listed.stderr
    ended = command(folder, *SMALL, "--run-dir", "run")
    assert ended.returncode == 0, ended.stderr
    assert (folder / "run" / "report.html").exists()
    ended = command(folder, "--resume", "run", "--rounds", "3")
    assert ended.returncode == 0, ended.stderr
    ended = command(folder, *SMALL, "--seed", "0,1", "--run-dir", "sweep")
    assert ended.returncode == 0, ended.stderr
    assert (folder / "sweep" / "report.html").exists()


def check_a_site_answers(folder):
    """As a client process of Flower."""
    ended = subprocess.run([sys.executable, "-c", SITE], cwd=folder, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("{'partition-id': 1}\n", "")


def check_is_named(folder, name):
    """A command or key that asks for what is not there is one line that names it."""
    assert RUN_KEYS.keys() >= {*ANNEXES[name].keys}
    lines = [[word] for word in ANNEXES[name].brings.get("commands", ())]
    lines += [[*SMALL, f"--{key}", VALUES[key]] for key in ANNEXES[name].keys]
    for line in [*lines, *LINES.get(name, ())]:
        refused = command(folder, *line)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1
        assert f"fedbn_flower/{name}, which is not there" in refused.stderr
    for word in ANNEXES[name].brings.get("public", ()):
        code = f"from fedbn_flower import {word}"
        refused = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
        assert f"UserError: {word}: " in refused.stderr.splitlines()[-1]


def test_without_all_of_them_the_rest_works(house):
    folder = house(*ANNEXES)
    check_all_works(folder)
    check_a_site_answers(folder)
    for name in ANNEXES:
        check_is_named(folder, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANNEXES)
def test_without_one_of_them_the_rest_works(house, name):
    folder = house(name)
    check_all_works(folder)
    check_is_named(folder, name)


@pytest.mark.slow
def test_without_all_of_them_the_tests_of_the_rest_pass(house):
    folder = house(*ANNEXES)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__", *ANNEXES))
    line = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-rs", "-m", "not slow", *CORE]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(line, cwd=folder, env=own, capture_output=True, text=True, timeout=1200)
    assert ended.returncode == 0, ended.stdout[-5000:]


def test_the_usual_job_loads_none_that_only_keys_ask_for(tmp_path):
    code = "import sys; from fedbn_flower.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    run = [sys.executable, "-c", code, *SMALL, "--run-dir", tmp_path / "run"]
    ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    by_key = {name for name, annex in ANNEXES.items() if annex.keys and "extensions" in annex.brings}
    assert by_key
    assert not {f"fedbn_flower.{name}" for name in by_key} & {*ended.stdout.split()}


def test_what_they_bring_is_there():
    for name, annex in ANNEXES.items():
        for places in annex.brings.values():
            for place in places.values():
                module, _, attribute = place.partition(":")
                path = ROOT / "fedbn_flower" / name / f"{module.replace('.', '/')}.py"
                assert path.exists() or (path.with_suffix("") / "__init__.py").exists(), (name, place)
                assert attribute

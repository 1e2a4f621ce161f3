"""Annexes: with any of their folders taken away, and with all of them, the rest works."""

import json
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
"""What else asks for one, but its commands, where there is a run."""
FILES = ("nifti/a/1.nii.gz", "dicom/a/1.dcm")
CORE = (
    "tests/strategies/messages",
    "tests/fedbn_flower/config/test_config.py",
    "tests/fedbn_flower/config/test_own_algorithms.py",
    "tests/fedbn_flower/config/test_refusals.py",
    "tests/fedbn_flower/config/test_schedules.py",
    "tests/fedbn_flower/core",
    "tests/fedbn_flower/extensions",
    "tests/fedbn_flower/job/test_model_fit.py",
    "tests/fedbn_flower/names",
    "tests/fedbn_flower/records/test_array_file.py",
    "tests/fedbn_flower/site/test_ledger.py",
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


IN_TURN = """
import io, json, sys
from contextlib import redirect_stderr
from fedbn_flower.cli import main
ended = []
for line in json.loads(sys.argv[1]):
    with redirect_stderr(io.StringIO()) as errors:
        ended.append((main(line), errors.getvalue()))
print(json.dumps(ended))
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


def commands(folder, *lines):
    """The exit status and the lines of errors of each of some commands, given in turn in one process."""
    ended = subprocess.run(
        [sys.executable, "-c", IN_TURN, json.dumps(lines)], cwd=folder, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return [(status, errors.splitlines()) for status, errors in json.loads(ended.stdout.splitlines()[-1])]


def check_all_works(folder, *more):
    lines = (["--list", "all"], [*SMALL, "--run-dir", "run"], *more)
    assert [status for status, _ in commands(folder, *lines)] == [0] * len(lines)
    assert (folder / "run" / "report.html").exists()


def check_a_site_answers(folder):
    """As a client process of Flower."""
    ended = subprocess.run([sys.executable, "-c", SITE], cwd=folder, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("{'partition-id': 1}\n", "")


def check_are_named(folder, names):
    """A command, a key or an import that asks for what is not there is one line that names it."""
    asked = []
    for name in names:
        assert RUN_KEYS.keys() >= {*ANNEXES[name].keys}
        lines = [[word] for word in ANNEXES[name].brings.get("commands", ())]
        lines += [[*SMALL, f"--{key}", VALUES[key]] for key in ANNEXES[name].keys]
        lines += LINES.get(name, ()) if (folder / "run").exists() else ()
        asked += [(name, line) for line in lines]
    for (name, line), (status, errors) in zip(
        asked, commands(folder, *(line for _, line in asked)), strict=True
    ):
        assert (status, len(errors)) == (2, 1), line
        assert f"fedbn_flower/{name}, which is not there" in errors[0]
    for word in (word for name in names for word in ANNEXES[name].brings.get("public", ())):
        code = f"from fedbn_flower import {word}"
        refused = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
        assert f"UserError: {word}: " in refused.stderr.splitlines()[-1]


def test_without_all_of_them_a_site_answers_and_each_is_named(house):
    folder = house(*ANNEXES)
    check_a_site_answers(folder)
    check_are_named(folder, ANNEXES)


@pytest.mark.slow
def test_without_all_of_them_the_rest_works(house):
    folder = house(*ANNEXES)
    sweep = [*SMALL, "--seed", "0,1", "--run-dir", "sweep"]
    check_all_works(folder, ["--resume", "run", "--rounds", "3"], sweep)
    assert (folder / "sweep" / "report.html").exists()
    check_are_named(folder, ANNEXES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANNEXES)
def test_without_one_of_them_the_rest_works(house, name):
    folder = house(name)
    check_all_works(folder)
    check_are_named(folder, [name])


@pytest.mark.slow
def test_without_all_of_them_the_tests_of_the_rest_pass(house):
    folder = house(*ANNEXES)
    for part in ("docs", "examples", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", *ANNEXES))
    line = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-rs", "-m", "not slow", *CORE]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(line, cwd=folder, env=own, capture_output=True, text=True, timeout=1200)
    assert ended.returncode == 0, ended.stdout[-5000:]


@pytest.mark.slow
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

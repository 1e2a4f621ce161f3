"""Annexes: with some of their folders taken away, and with all of them, the rest works."""

import json
import os
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from fedbn_flower.annexes import ANNEXES
from fedbn_flower.config.keys import RUN_KEYS

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("fedbn_flower", "strategies", "clients", "run_sim.py", "pyproject.toml", "README.md")
SMALL = ("--backend", "inline", "--rounds", "2", "--local-epochs", "1")
USUAL = (["--list", "all"], [*SMALL, "--run-dir", "run"])
VALUES = {
    **{"attack": "sign-flip:1", "attackers": "0.3", "inspect": "true", "track": "tensorboard"},
    **{"recalibrate": "temperature", "subgroups": "sex"},
    **{"secagg": "on", "secagg-bits": "8", "secagg-threshold": "2", "secagg-min": "2"},
    **{"concurrency": "2", "mixing": "0.5", "protocol": "fedbuff:2"},
    **{"spacing": "2", "window": "0..400"},
    **{"feature-shift": "inverted", "ray-address": "127.0.0.1:1", "workers": "2"},
}
"""A value of a key that asks for an annex."""
LINES = {
    "clinic": [["--dataset", "nifti"], ["--dataset", "dicom"]],
    "estimate": [["--dry-run"]],
    "files": [["--dataset", "nifti"], ["--dataset", "some.csv"], ["--dataset", "text:play.txt"]],
    "libraries": [[*SMALL, "--model", "torchvision:resnet18"]],
    "own_data": [["--dataset", "own.py:data"]],
    "runtime.ray": [["--backend", "ray"]],
    "search": [["--search", "client-lr=0.01,0.1"]],
    "sweeps": [
        ["--seed", "0,1"],
        ["--sweep", "client-lr=0.01,0.1"],
        ["--experiment", "runs.toml"],
        ["--folds", "2"],
        ["--leave-one-site-out", "true"],
    ],
    "study": [["export", "run", "--to", "methods"]],
}
"""What else asks for one, but its commands, where there is a run."""
BEHIND = {"clinic": "files", "study": "exports"}
"""An annex of whose lines another would be asked first."""
FILES = ("nifti/a/1.nii.gz", "dicom/a/1.dcm", "own.py")
CORE = (
    "tests/strategies/messages/test_gate.py",
    "tests/fedbn_flower/config/test_config.py",
    "tests/fedbn_flower/config/test_refusals.py",
    "tests/fedbn_flower/extensions",
    "tests/fedbn_flower/names",
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

FORKED = """
import io, json, os, sys
from contextlib import redirect_stderr, redirect_stdout

import flwr, matplotlib.pyplot, pandas, rich, scipy.stats, sklearn, torch, torchvision

def save(figure, buffer, **options):
    buffer.write("<svg></svg>" if options["format"] == "svg" else b"")

def ended(folder, lines, words):
    os.chdir(folder)
    from fedbn_flower.results.plotting.svg_figure import InlineFigure
    InlineFigure._save = save
    from fedbn_flower.cli import main
    found = []
    for line in lines:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as errors:
            found.append((main(line), errors.getvalue().splitlines()))
    for word in words:
        try:
            exec(f"from fedbn_flower import {word}")
        except Exception as error:
            found.append((None, [f"{type(error).__name__}: {error}"]))
    return found, [*sys.modules]

for asked in sys.stdin:
    if not os.fork():
        try:
            found = ended(*json.loads(asked))
        except BaseException as error:  # the test waits for a line
            found = [[None, [repr(error)]]], []
        print(json.dumps(found), flush=True)
        os._exit(0)
    os.wait()
"""
"""Has the libraries, which take seconds to import, once for all houses; no figure is drawn."""


def place_of(annex, house=Path()):
    """Return the folder of an annex in a house."""
    return house.joinpath("fedbn_flower", *annex.split("."))


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    command = [sys.executable, "-c", FORKED]
    place = tmp_path_factory.mktemp("process")
    with subprocess.Popen(
        command, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:  # fmt: skip
        yield process
        process.stdin.close()


@pytest.fixture
def commands(process):
    """A function that gives commands in turn in a folder's house, and imports names: the exit status and the
    lines of errors of each, and the modules that were loaded."""

    def ended(folder, lines, words=()):
        print(json.dumps([str(folder), lines, words]), file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())

    return ended


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A function that returns a copy of the project without some of its annexes."""

    def without(*annexes):
        folder = tmp_path_factory.mktemp("-".join(annexes)[:40])
        for part in PARTS:
            if (ROOT / part).is_dir():
                ignored = shutil.ignore_patterns("*.pyc.*")  # what is just being compiled
                shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=ignored)
            else:
                shutil.copy(ROOT / part, folder / part)
        for name in annexes:
            shutil.rmtree(place_of(name, folder))
        for path in FILES:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).touch()
        return folder

    return without


def check_a_site_answers(folder):
    """As a client process of Flower."""
    ended = subprocess.run([sys.executable, "-c", SITE], cwd=folder, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("{'partition-id': 1}\n", "")


def check_are_named(commands, folder, names, works=()):
    """What has to work does. A command, a key or an import that asks for what is not there is one line that
    names it."""
    lines, words, lacks = [*works], [], []
    for name in names:
        annex = ANNEXES[name]
        assert RUN_KEYS.keys() >= {*annex.keys}
        asked = [[word] for word in annex.brings.get("commands", ())]
        asked += [[*SMALL, f"--{key}", VALUES[key]] for key in annex.keys]
        asked += LINES.get(name, ()) if BEHIND.get(name) not in names else ()
        lines += asked
        lacks += [name] * len(asked)
        words += annex.brings.get("public", ())
    ended, _ = commands(folder, lines, words)
    assert [(line, errors) for line, (status, errors) in zip(works, ended, strict=False) if status != 0] == []
    refused, imports = ended[len(works) : len(lines)], ended[len(lines) :]
    for name, line, (status, errors) in zip(lacks, lines[len(works) :], refused, strict=True):
        assert (status, len(errors)) == (2, 1), line
        assert f"{place_of(name)}, which is not there" in errors[0]
    for word, (_, (error,)) in zip(words, imports, strict=True):
        assert error.startswith(f"UserError: {word}: ")


@pytest.mark.slow
def test_without_all_of_them_the_rest_works_and_each_is_named(house, commands):
    folder = house(*ANNEXES)
    check_a_site_answers(folder)
    check_are_named(commands, folder, ANNEXES, [*USUAL, ["--resume", "run", "--rounds", "3"]])
    assert (folder / "run" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line", "left"),
    [
        ("estimate", ["--dry-run"], ""),
        ("search", [*SMALL, "--search", "client-lr=0.01,0.1", "--trials", "2", "--run-dir", "run"], "run"),
        ("sweeps", [*SMALL, "--seed", "0,1", "--run-dir", "run"], "run"),
    ],
)
def test_one_of_them_works_without_the_others(house, commands, name, line, left):
    folder = house(*(ANNEXES.keys() - {name}))
    ended, _ = commands(folder, [line])
    assert ended == [[0, []]]
    assert not left or (folder / left / "report.html").exists()


PLACES = dict(zip(ANNEXES, combinations(range(7), 3), strict=False))
THIRDS = [[name for name in ANNEXES if number in PLACES[name]] for number in range(7)]
"""No two annexes are missing in the same three, so that each is once missing where the other is there."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "names", [*THIRDS, *(pytest.param([name], marks=pytest.mark.exhaustive, id=name) for name in ANNEXES)]
)
def test_without_some_of_them_the_rest_works(house, commands, names):
    folder = house(*names)
    check_are_named(commands, folder, names, USUAL)
    assert (folder / "run" / "report.html").exists()


@pytest.mark.slow
def test_without_all_of_them_the_tests_of_the_rest_pass(house):
    folder = house(*ANNEXES)
    names = [place_of(name).name for name in ANNEXES]
    for part in ("docs", "examples", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*.pyc.*", *names))
    line = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-rs", "-m", "not slow", *CORE]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(line, cwd=folder, env=own, capture_output=True, text=True, timeout=1200)
    assert ended.returncode == 0, ended.stdout[-5000:]


@pytest.mark.slow
def test_the_usual_job_loads_none_that_only_keys_ask_for(commands, tmp_path):
    ended, loaded = commands(ROOT, [[*SMALL, "--run-dir", str(tmp_path / "run")]])
    assert ended == [[0, []]]
    by_key = {name for name, annex in ANNEXES.items() if annex.keys and "extensions" in annex.brings}
    assert by_key
    assert not {f"fedbn_flower.{name}" for name in by_key} & {*loaded}


def test_what_they_bring_is_there():
    for name, annex in ANNEXES.items():
        for places in annex.brings.values():
            for place in places.values():
                module, _, attribute = place.partition(":")
                path = place_of(name, ROOT) / f"{module.replace('.', '/')}.py"
                assert path.exists() or (path.with_suffix("") / "__init__.py").exists(), (name, place)
                assert attribute

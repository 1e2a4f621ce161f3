"""The wheel as somebody installs it, in an environment of its own outside the checkout."""

import json
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from .processes import FORGETTING, LONG, ROOT, bits

pytestmark = pytest.mark.slow


PIP = [sys.executable, "-m", "pip"]
PICTURES = (ROOT / "tests" / "pictures.py").read_text()
OWN = (ROOT / "tests" / "fedbn_flower" / "api" / "own_objects.py").read_text()


def built(source, folder):
    """The wheel of a checkout or a source archive."""
    command = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory):
    """The programs of a new environment with the wheel, and with the packages of this one for the rest."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    programs = folder / "bin"
    install = ["--python", programs / "python", "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run([*PIP, *install], check=True, capture_output=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))  # whose own .pth files do not count
    for program in Path(sys.executable).parent.glob("fl*"):
        if program.read_bytes().startswith(b"#!"):
            code = program.read_text().split("\n", 1)[1]
            (programs / program.name).write_text(f"#!{programs}/python\n{code}")
            (programs / program.name).chmod(0o755)
    return programs


@pytest.fixture
def do(programs, tmp_path, marked_environment):
    """A function that runs a program of the environment in a folder; its output."""
    environment = {**marked_environment[1], **FORGETTING, "PATH": f"{programs}:/usr/bin:/bin"}

    def run(*words, here=tmp_path):
        command = [programs / words[0], *map(str, words[1:])]
        ended = subprocess.run(
            command, cwd=here, env=environment, capture_output=True, text=True, timeout=LONG
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    return run


def content(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_it_is_typed_and_says_what_it_is(wheel):
    files = content(wheel)
    (folder,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    about = Parser().parsestr(files[f"{folder}/METADATA"].decode())
    assert "fedbn_flower/results/report/papers.md" in files
    assert {f"{package}/py.typed" for package in ("strategies", "clients", "fedbn_flower")} <= files.keys()
    packages = {name.split("/")[0] for name in files}
    assert packages == {"strategies", "clients", "fedbn_flower", folder}
    assert b"fedbn-sim = fedbn_flower.cli:main" in files[f"{folder}/entry_points.txt"]
    assert "Typing :: Typed" in about.get_all("Classifier")
    assert about["Author"]


def test_a_source_archive_gives_the_same_wheel(wheel, tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "run_sim.py"} <= names
    assert content(built(archive, tmp_path)) == content(wheel)


def test_an_app_of_ones_own_is_tested_and_run_on_supernodes(do, tmp_path):
    """By the command of its README. Without a run-dir the results lie in the SuperLink's FLWR_HOME."""
    do("fedbn-sim", "new", "my-study")
    app = tmp_path / "my-study"
    assert "1 passed" in do("python", "-m", "pytest", "-p", "no:cacheprovider", here=app)
    study = (app / "study.toml").read_text().replace("rounds = 3", "rounds = 1")
    (app / "study.toml").write_text(study.replace("num-clients = 3", "num-clients = 1"))
    command = "consortium try --sites 3 -- flwr run . --stream --run-config study.toml"
    assert command in " ".join((app / "README.md").read_text().split())
    _, _, _, _, *run = command.split()
    told = do("fedbn-sim", "consortium", "try", "--sites", 1, "--folder", tmp_path / "here", *run, here=app)
    assert "SuperLink and 1 SuperNodes are up" in told
    assert "round 1: " in told
    (folder,) = (tmp_path / "here").glob("superlink/flwr/*/runs/*")
    assert f"results are in {folder}" in told
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["rounds"], summary["failures"]) == (1, 0)


def test_it_runs_with_files_and_packages_of_any_folder(do, tmp_path, cache_dir):
    """Begun in one process, and gone on with on Ray, from the run's folder alone."""
    here = tmp_path / "here"
    for place in ("here/own.py", "here/package/rules.py", "elsewhere/own.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(OWN)
    flags = {
        "strategy": "package.rules:Scaled", "client": "own.py:KeepsBiases",
        "objective": f"{tmp_path}/elsewhere/own.py:Pull", "scale": 0.5, "pull": 0.1, "cache-dir": cache_dir,
        "partition": "dirichlet:0.5", "num-clients": 5, "fraction-train": 0.6, "backend": "inline",
    }  # fmt: skip
    common = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    code = (
        "import sys, fedbn_flower.cli as cli\n"
        "assert cli.__file__.startswith(sys.prefix)\n"
        f"common = {common!r}\n"
        "assert cli.main([*common, '--rounds', '2', '--run-dir', 'inline']) == 0\n"
        f"{PICTURES}\ndraw_none()\n"
        "assert cli.main([*common, '--rounds', '1', '--run-dir', 'ray']) == 0\n"
        "sys.exit(cli.main(['--resume', 'ray', '--rounds', '2', '--backend', 'ray', '--workers', '1']))"
    )
    do("python", "-c", code, here=here)
    for backend in ("ray", "inline"):
        summary = json.loads((here / backend / "summary.json").read_text())
        assert summary["failures"] == 0
        assert summary["rounds"] == 2
    assert (here / "inline" / "report.html").exists()
    config = json.loads((here / "ray" / "config.json").read_text())
    assert (config["scale"], config["pull"]) == (0.5, 0.1)
    assert bits(here / "ray") == bits(here / "inline")

"""The wheel as somebody installs it: what is in it, and that it runs where there is no checkout."""

import json
import subprocess
import sys
import zipfile
from email.parser import Parser

import pytest

from .processes import ROOT, bits

pytestmark = pytest.mark.slow


PIP = [sys.executable, "-m", "pip"]
OWN = (ROOT / "tests" / "fedbn_flower" / "api" / "own_objects.py").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, "."]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_it_is_typed_and_says_what_it_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (folder,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        about = Parser().parsestr(archive.read(f"{folder}/METADATA").decode())
        entry_points = archive.read(f"{folder}/entry_points.txt").decode()
    assert "fedbn_flower/results/report/papers.md" in names
    assert {f"{package}/py.typed" for package in ("strategies", "clients", "fedbn_flower")} <= names
    packages = {name.split("/")[0] for name in names}
    assert packages == {"strategies", "clients", "fedbn_flower", folder}
    assert "fedbn-sim = fedbn_flower.cli:main" in entry_points
    assert "Typing :: Typed" in about.get_all("Classifier")
    assert about["Author"]


def test_it_runs_without_a_checkout_with_files_and_packages_of_any_folder(
    wheel, tmp_path, cache_dir, marked_environment
):  # fmt: skip
    """Begun in one process, and gone on with on Ray, from the run's folder alone."""
    site, here = tmp_path / "site", tmp_path / "here"
    install = [*PIP, "install", "-q", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True)
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
        f"import sys; sys.path[0] = {str(site)!r}\n"
        f"import fedbn_flower.cli as cli; assert cli.__file__.startswith({str(site)!r})\n"
        f"common = {common!r}\n"
        "assert cli.main([*common, '--rounds', '2', '--run-dir', 'inline']) == 0\n"
        "assert cli.main([*common, '--rounds', '1', '--run-dir', 'ray']) == 0\n"
        "sys.exit(cli.main(['--resume', 'ray', '--rounds', '2', '--backend', 'ray', '--workers', '1']))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here, env=marked_environment[1], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for backend in ("ray", "inline"):
        summary = json.loads((here / backend / "summary.json").read_text())
        assert summary["failures"] == 0
        assert summary["rounds"] == 2
        assert (here / backend / "report.html").exists()
    config = json.loads((here / "ray" / "config.json").read_text())
    assert (config["scale"], config["pull"]) == (0.5, 0.1)
    assert bits(here / "ray") == bits(here / "inline")

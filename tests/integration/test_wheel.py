"""The wheel as somebody installs it: what is in it, and that it runs where there is no checkout."""

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        ".",
    ]
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
    assert {url.split(",")[0] for url in about.get_all("Project-URL")} >= {"Homepage", "Changelog"}
    assert "Typing :: Typed" in about.get_all("Classifier")
    assert about["Author"]


def test_its_description_has_no_link_that_leads_nowhere_on_a_package_index():
    text = (ROOT / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)
    assert len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_it_runs_without_a_checkout(wheel, tmp_path, cache_dir):
    target = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        target,
        wheel,
    ]
    subprocess.run(install, check=True, capture_output=True)
    run = tmp_path / "run"
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        f"import fedbn_flower.cli as cli; assert cli.__file__.startswith({str(target)!r})\n"
        "sys.exit(cli.main())"
    )
    flags = [
        "--rounds",
        "1",
        "--backend",
        "ray",
        "--workers",
        "1",
        "--run-dir",
        str(run),
        "--cache-dir",
        str(cache_dir),
    ]
    result = subprocess.run(
        [sys.executable, "-c", code, *flags], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert (run / "summary.json").exists()
    assert (run / "report.html").exists()

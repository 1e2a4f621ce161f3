"""The newcomer's path, as the README has it."""

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {"python": [sys.executable], "fedbn-sim": [sys.executable, str(ROOT / "run_sim.py")]}


def commands():
    """The lines of the section's first block, without comments."""
    section = (ROOT / "README.md").read_text().split("## Experiments\n")[1].split("\n## ")[0]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)[1]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_run_look_sweep_compare_and_go_on(tmp_path):
    (tmp_path / "run_sim.py").symlink_to(ROOT / "run_sim.py")
    first, sweep, compare, again = commands()
    for program, *words in (first, sweep, compare):
        subprocess.run([*PROGRAMS[program], *words], cwd=tmp_path, check=True, timeout=300)
    runs = tmp_path / "runs"
    page = (runs / "first" / "report.html").read_text()
    assert "fedyogi" in page
    assert "src=" not in page
    rows = list(csv.DictReader((runs / "sweep" / "grid.csv").open()))
    assert [(row["server-lr"], row["seed"], row["status"]) for row in rows] == [
        (rate, seed, "ok") for rate in ("0.003", "0.03") for seed in "01"
    ]
    assert all((runs / "sweep" / row["folder"] / "report.html").exists() for row in rows)
    assert {path.name for path in (runs / "compared").iterdir()} == {
        "compare.html", "compare.md", "compare.png",
    }  # fmt: skip
    before = (runs / "first" / "metrics.csv").read_text()
    subprocess.run([*PROGRAMS[again[0]], *again[1:]], cwd=tmp_path, check=True, timeout=300)
    assert json.loads((runs / "first" / "summary.json").read_text())["rounds"] == 12
    assert (runs / "first" / "metrics.csv").read_text().startswith(before)


def test_the_observer_of_the_documentation(tmp_path):
    text = (ROOT / "docs" / "experiments.md").read_text()
    code = re.search(r"```python\n(from fedbn_flower import Observer.*?)```", text, re.DOTALL)[1]
    script = tmp_path / "tracker.py"
    script.write_text(code.replace("rounds=10", "rounds=2, backend='inline', progress=False"))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300
    )
    told = [line for line in done.stdout.splitlines() if "client-mean-accuracy" in line]
    assert [line.split()[0] for line in told] == ["1", "2"]

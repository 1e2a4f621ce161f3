"""The newcomer's path, as docs/get-started.md has it."""

import csv
import json
import re
import shlex
import subprocess
import sys
from statistics import mean, stdev

import pytest

from fedbn_flower import cli

from .processes import LONG, ROOT, processes_with

pytestmark = pytest.mark.slow

HERE = ("--backend", "inline")
"""Processes side by side, each of which imports PyTorch, are `test_sweeps`'s."""


def commands(title="3. Run, compare, go on"):
    """The lines of the section's first block, without comments."""
    page = (ROOT / "docs" / "get-started.md").read_text()
    section = page.split(f"## {title}\n")[1].split("\n## ")[0]
    block = re.search(r"```bash\n(.*?)```", section, re.DOTALL)[1]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def test_run_look_sweep_compare_and_go_on(tmp_path, marked_environment, monkeypatch, few_draws):
    """What the first, of nothing but defaults, starts has ended with it. The others' lines are read in this
    process, and so the sweep's runs are done, one after the other, of a round."""
    (tmp_path / "run_sim.py").symlink_to(ROOT / "run_sim.py")
    mark, environment = marked_environment
    monkeypatch.chdir(tmp_path)

    def do(program, *words):
        assert (program, words[0]) == ("python", "run_sim.py") or program == "fedbn-sim"
        assert cli.main(list(words[program == "python" :])) == 0

    (_, *first), sweep, compare, again = commands()
    sweep[sweep.index("--rounds") + 1] = "1"
    result = subprocess.run(
        [sys.executable, *first], cwd=tmp_path, env=environment, check=True, timeout=LONG,
        capture_output=True, text=True,
    )  # fmt: skip
    assert not processes_with(mark)
    assert result.stderr == ""
    assert "INFO" not in result.stdout
    assert "mean over clients" in result.stdout
    runs = tmp_path / "runs"
    summary = json.loads((runs / "first" / "summary.json").read_text())
    assert all(client["accuracy"] > 0.8 for client in summary["clients"].values())
    for command in ([*sweep, *HERE], compare):
        do(*command)
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
    do(*again)
    assert json.loads((runs / "first" / "summary.json").read_text())["rounds"] == 12
    assert (runs / "first" / "metrics.csv").read_text().startswith(before)


def test_fedbn_is_ahead_of_fedavg_beyond_the_deviations(
    tmp_path, cache_dir, monkeypatch, pictures_not_drawn, few_draws
):
    """What README's second command shows, and the table of get-started; with two of its three seeds."""
    ((_, _, *words),) = commands("2. See what a BatchNorm policy changes")
    words[words.index("0,1,2")] = "0,1"
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words, *HERE, "--cache-dir", str(cache_dir)]) == 0
    found = {}
    for row in csv.DictReader((tmp_path / "runs" / "scanners" / "grid.csv").open()):
        found.setdefault(row["client"], []).append(float(row["accuracy: mean over clients"]))
    spread = {client: (mean(values), stdev(values)) for client, values in found.items()}
    assert spread["fedbn"][0] - spread["fedbn"][1] > sum(spread["shared"])
    assert spread["silobn"][0] - spread["silobn"][1] > sum(spread["shared"])


def test_the_observer_of_the_documentation(tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "how-to" / "python.md").read_text()
    code = re.search(r"```python\n(from fedbn_flower import Observer.*?)```", text, re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    exec(code.replace("rounds=10", "rounds=2, backend='inline', progress=False"), {})
    output = [line for line in capsys.readouterr().out.splitlines() if "client-mean-accuracy" in line]
    assert [line.split()[0] for line in output] == ["1", "2"]

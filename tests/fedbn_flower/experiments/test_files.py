"""The experiments of the documentation: each can be asked for, and runs."""

import csv
import shlex
import tomllib

import pytest

from fedbn_flower import cli
from fedbn_flower.arguments import asked
from fedbn_flower.errors import UserError
from fedbn_flower.experiments.experiment import swept_keys
from fedbn_flower.registry import APP
from fedbn_flower.results.progress import cell_name

EXPERIMENTS = sorted((APP / "experiments").glob("*.toml"))
RUNS = {
    "feature-shift": 6 * 5,
    "feature-shift-new-site": 5 * 12,
    "fixed-point": 3 * 2 + 1,
    "hospitals": 2 * 3 * 3,
    "mcmahan-2nn-rates": 4 * 3 + 2 * 3,
    "objectives-and-clients": (10 + 4 + 2) * 2,
    "rounds-to-accuracy": 4 * 2,
    "synthetic": 3,
    "tables": 2,
    "text": 1,
    "two-silos": (1 + 4 * 2) * 3,
}
OFFLINE = {
    "feature-shift": "",
    "feature-shift-new-site": "",
    "mcmahan-2nn-rates": "--dataset digits",
    "fixed-point": "",
    "objectives-and-clients": "--dataset digits --model mlp-bn --partition iid --local-epochs 1",
    "rounds-to-accuracy": "--dataset digits",
    "synthetic": "",
    "two-silos": "--dataset digits",
}
"""What makes each small enough to be run here."""


def test_every_file_is_known():
    assert [path.stem for path in EXPERIMENTS] == sorted(RUNS)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_its_command_is_understood_and_its_runs_are_told_apart(path, monkeypatch):
    monkeypatch.chdir(APP)
    comment = [line[1:].strip() for line in path.read_text().split("\n\n")[0].splitlines()]
    python, script, *arguments = shlex.split(" ".join(comment[1:]).replace("\\", ""))
    assert (python, script) == ("python", "run_sim.py")
    assert arguments[:2] == ["--experiment", str(path.relative_to(APP))]
    job = asked(arguments)
    assert len(job.configs) == RUNS[path.stem]
    keys = swept_keys(job.sweep, job.configs) if job.sweep else ()
    assert len({cell_name(config, keys) for config in job.configs}) == len(job.configs)
    given = tomllib.loads(path.read_text())
    assert "dataset" in {*given, *given.get("runs", [{}])[0]}


@pytest.mark.slow
@pytest.mark.parametrize("name", OFFLINE)
def test_it_runs(name, cache_dir, tmp_path, monkeypatch):
    """Two rounds of one seed."""
    monkeypatch.chdir(APP)
    small = f"--rounds 2 --seed 0 --backend inline --cache-dir {cache_dir} --run-dir {tmp_path}"
    words = f"--experiment experiments/{name}.toml {OFFLINE[name]} {small}"
    assert cli.main(words.split()) == 0
    with (tmp_path / "grid.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["status"] for row in rows} == {"ok"}
    seeds = tomllib.loads((APP / "experiments" / f"{name}.toml").read_text()).get("seed", [0])
    assert len(rows) == RUNS[name] / len(seeds)


def test_a_searchs_facts_are_no_experiment(tmp_path):
    path = tmp_path / "search.json"
    path.write_text('{"search": {"tau": "1..2"}, "trials": 3, "values": {}}')
    with pytest.raises(UserError, match="^experiment: '.*search.json' is not allowed; .*--resume FOLDER"):
        asked(["--experiment", str(path)])

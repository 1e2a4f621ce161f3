"""The experiments of the documentation: each can be asked for, and runs."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from datasets import Dataset
from PIL import Image

from fedbn_flower import cli
from fedbn_flower.cli.parser import Job, parse_command_line
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.checks.unused_keys import SEARCH, SIMULATION
from fedbn_flower.names import APP
from fedbn_flower.results.progress import cell_name
from fedbn_flower.runtime.simulation import simulate
from fedbn_flower.server.federation import Federation
from fedbn_flower.sweeps.experiment import swept_keys
from tests.quick import some_quick
from tests.unused import unused_without_data

from ..results.written import csv_rows

FOLDER = APP / "experiments"
EXPERIMENTS = sorted(FOLDER.glob("*.toml"), key=lambda path: path.stem)
SMALL = {
    name: words
    for words, names in {
        "--dataset digits --num-clients 20": "asynchronous privacy-feature-shift",
        "--dataset digits --image-size 16 --num-clients 20": "asynchronous-cifar",
        "--dataset digits --image-size 16 --partition iid --num-clients 4": (
            "cifar-clients cifar-methods cifar-mild cifar-rates"
        ),
        "--local-epochs 1 --batch-size 512": "batchnorm",
        "--local-epochs 1 --batch-size 72": "clusters",
        "--dataset digits": "codecs secagg two-silos",
        "--model mlp-bn": "feature-shift feature-shift-new-site label-skew-bn",
        "--dataset digits --num-clients 20 --holdout-clients 10 --image-size 32": "fedproto",
        "--dataset digits --num-clients 10 --image-size 32": "label-skew label-skew-search",
        "--dataset digits --num-clients 10 --model mlp-bn": "label-skew-full",
        "--dataset digits --num-clients 10": (
            "mcmahan-2nn mcmahan-2nn-init mcmahan-2nn-rates mcmahan-cnn mcmahan-cnn-full "
            "mcmahan-cnn-rates mcmahan-cnn-shards mcmahan-epochs mcmahan-small rounds-to-accuracy"
        ),
        "--dataset digits --num-clients 10 --image-size 32 --local-epochs 2": "niid-bench niid-bench-mnist",
        "--dataset digits --model mlp-bn --partition iid --local-epochs 1": "objectives-and-clients",
        "--dataset digits --image-size 16 --num-clients 40": "privacy-cifar privacy-cifar-rates",
        "--dataset digits --image-size 16": "privacy-dpsgd privacy-dpsgd-tutorial",
        "--dataset digits --num-clients 40": "privacy-mnist privacy-mnist-rates privacy-turns",
        "--dataset digits --partition iid --val-fraction 0.2": "robust",
        "--dataset digits --image-size 32": "secagg-cifar",
        "--dataset digits --image-size 16 --num-clients 10": "shifted-cifar",
        "--local-epochs 2": "stragglers unequal-work",
        "--dataset text:play.txt --num-clients 2 --local-epochs 1": "text text-search",
    }.items()
    for name in names.split()
}
"""What makes those small that are not: the digits, and fewer clients, quicker models, less work."""


def command_of(path):
    """The words of the command in a file's first lines, after `python run_sim.py`."""
    head = path.read_text().split("\n\n")[0]
    comment = " ".join(line.lstrip("#").strip(" \\") for line in head.splitlines())
    _, command = comment.split("python run_sim.py ")
    return shlex.split(command)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A folder with what the scripts of the tables and scanners leave, and a play."""
    folder = tmp_path_factory.mktemp("tables")
    to = {"tables": "runs/data", "scanners": "runs/data/scanners", "../examples/make_hospital_data": "data"}
    with pytest.MonkeyPatch.context() as patch:
        for script, place in to.items():
            patch.setattr(sys, "argv", [script, str(folder / place)])
            runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")
    speech = "So foul and fair a day I have not seen. "
    (folder / "play.txt").write_text("".join(f"{who}:\n{speech * 200}\n\n" for who in ("MACBETH", "BANQUO")))
    return folder


@pytest.mark.sampled(6)
@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_its_command_is_understood_and_its_runs_are_distinguished(path, monkeypatch):
    monkeypatch.chdir(APP)
    arguments = command_of(path)
    assert arguments[:2] == ["--experiment", str(path.relative_to(APP))]
    job = parse_command_line(arguments)
    is_search = not isinstance(job, Job)
    configs = job.args[0].configs()[:1] if is_search else job.configs
    assert not any(unused_without_data(config, SEARCH if is_search else SIMULATION) for config in configs)
    keys = swept_keys(job.sweep, configs) if not is_search and job.sweep else ()
    assert len({cell_name(config, keys) for config in configs}) == len(configs)
    given = tomllib.loads(path.read_text())
    assert "dataset" in {*given, *given.get("runs", [{}])[0]}


def test_every_file_is_in_the_documentation():
    """By a command: tests/docs/test_code_blocks.py asks whether it is understood."""
    pages = "\n".join(page.read_text() for page in (APP / "docs" / "results").glob("*.md"))
    named = re.findall(r"experiments/([a-z0-9-]+)\.toml", pages)
    assert {path.stem for path in EXPERIMENTS} <= set(named)


WHOLE = {"label-skew-search", "mcmahan-small", "secagg-table", "tables", "text-search"}
"""Of these all runs for every change; of every third of the others the first one, and all exhaustively."""
OTHERS = [path.stem for path in EXPERIMENTS if path.stem not in WHOLE]


def words_of(name, folder, cache_dir, rounds):
    words = f"--experiment {FOLDER / name}.toml --rounds {rounds} --seed 0 --backend inline"
    return f"{words} --cache-dir {cache_dir} --run-dir {folder} {SMALL.get(name, '')}"


@pytest.mark.slow
@pytest.mark.usefixtures("pictures_not_drawn", "few_draws")
@pytest.mark.parametrize("name", OTHERS)
def test_all_its_algorithms_are_made_and_its_first_run_runs(name, tables, cache_dir, tmp_path, monkeypatch):
    """For a round: that they run for more is `test_combinations`'s."""
    monkeypatch.chdir(tables)
    keys = ("strategy", "client", "objective", "loss", "model")
    configs = parse_command_line(words_of(name, tmp_path / "all", cache_dir, 1).split()).configs
    if OTHERS.index(name) % 3 == 0:
        first = Federation(configs[0].model_copy(update={"batch_size": 240}))
        assert simulate(first, tmp_path / "run", None).as_json()["failures"] == 0
    for config in {tuple(getattr(config, key) for key in keys): config for config in configs}.values():
        assert not Federation(config).unused, config


@pytest.mark.slow
@pytest.mark.usefixtures("pictures_not_drawn", "few_draws")
@pytest.mark.parametrize(
    "path", some_quick(EXPERIMENTS, [i for i, path in enumerate(EXPERIMENTS) if path.stem in WHOLE])
)
def test_it_runs(path, tables, cache_dir, tmp_path, monkeypatch, caplog):
    """A round of one seed; of a search one trial."""
    monkeypatch.chdir(tables)
    name = path.stem
    given = tomllib.loads(path.read_text())
    words = words_of(name, tmp_path / name, cache_dir, 1)
    if "search" in given:
        words += " --trials 1"
    assert cli.main(words.split()) == 0
    assert "unused:" not in caplog.text
    if "search" in given:
        return
    rows = csv_rows(tmp_path / name / "grid.csv")
    configs = parse_command_line(["--experiment", str(path)]).configs
    assert len(rows) == len({tuple((config.to_user_config() | {"seed": 0}).items()) for config in configs})
    assert {row["status"] for row in rows} == {"ok"}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_second_opinion_learns_from_a_mean_and_later_from_shards(tmp_path):
    """Clients that train one after another, each from where the last one ended, have it after a round."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 2000), ("test", 100)):
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 20, (count, 28, 28), np.uint8)
        images[np.arange(count), 2 * labels] = 255
        columns = {"image": [Image.fromarray(image) for image in images], "label": labels}
        Dataset.from_dict(columns).to_parquet(tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache")}
    rounds = []
    for partition in ("iid", "shards"):
        command = [sys.executable, FOLDER / "plain_fedavg.py", tmp_path, "--partition", partition]
        output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        rounds.append(int(re.fullmatch(r"(?:1\.0|0\.9[7-9])\d* after round (\d+)\n", output)[1]))
    assert 2 < rounds[0] < rounds[1]


def test_a_searchs_facts_are_no_experiment(tmp_path):
    path = tmp_path / "search.json"
    path.write_text('{"search": {"tau": "1..2"}, "trials": 3, "values": {}}')
    with pytest.raises(UserError, match="^experiment: '.*search.json' is not allowed; .*--resume FOLDER"):
        parse_command_line(["--experiment", str(path)])

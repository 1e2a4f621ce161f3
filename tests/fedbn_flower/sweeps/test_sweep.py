"""Sweeps in this process: gone on with on their folder, and failures that stop nothing else."""

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from fedbn_flower import cli
from fedbn_flower.records.summary import Summary
from fedbn_flower.results import run_folder
from fedbn_flower.results.progress import RoundLines
from fedbn_flower.sweeps import sweep
from fedbn_flower.sweeps.cells import DONE, cells_of
from fedbn_flower.sweeps.grid_table import Comparison

from ..results.test_metrics import summary
from ..results.written import csv_rows, write_run


def sweeping(patch, folder, cache_dir):
    """What runs a command line in this process and folder; its exit status."""
    patch.chdir(folder)
    patch.setattr(run_folder, "plot_partitions", lambda *_: None)
    patch.setattr(sweep.Comparison, "plot", lambda self: (self.folder / "grid.png").touch())

    def run(words, *further):
        small = "--num-clients 2 --partition iid --local-epochs 1 --batch-size 240"
        keys = "" if "--resume" in words else small
        here = f"--backend inline --cache-dir {cache_dir}"
        return cli.main([*words.split(), *further, *keys.split(), *here.split()])

    return run


@pytest.fixture
def swept(cache_dir, monkeypatch, tmp_path):
    return sweeping(monkeypatch, tmp_path, cache_dir)


@pytest.fixture(scope="module")
def recorded(cache_dir, tmp_path_factory, pictures_never_drawn, draws_always_few):
    """A sweep of two runs of a round."""
    folder = tmp_path_factory.mktemp("sweep")
    with pytest.MonkeyPatch.context() as patch:
        assert sweeping(patch, folder, cache_dir)("--seed 0,1 --rounds 1 --run-dir g") == 0
    return folder / "g"


@pytest.fixture
def two(recorded, tmp_path):
    """A copy of it, in the current folder."""
    shutil.copytree(recorded, tmp_path / "g")


def rows(folder="g"):
    return csv_rows(f"{folder}/grid.csv")


def ran(capsys):
    """The runs whose rounds were told since it was last asked, with the rounds."""
    lines = [line.split(": round ") for line in capsys.readouterr().out.splitlines() if ": round " in line]
    return [(name, int(rest.split("/")[0])) for name, rest in lines]


def interrupt_at(monkeypatch, name, server_round):
    output = RoundLines.on_round

    def on_round(self, result):
        output(self, result)
        if self._config.run_dir.endswith(name) and result.server_round == server_round:
            raise KeyboardInterrupt

    monkeypatch.setattr(RoundLines, "on_round", on_round)


A, B = (f"fedyogi-fedbn-plain-client-lr={rate}-seed0" for rate in ("0.01", "0.1"))


def test_in_a_terminal_the_cells_are_a_table_that_fills(configured, tmp_path):
    """One of four runs was done, one ends, one fails, one has done three of its four rounds."""
    names = ("fedavg", "fedadam")
    configs = [configured(strategy=name, seed=seed, rounds=4) for name in names for seed in (0, 1)]
    cells = cells_of(configs, [], tmp_path)
    done = write_run(cells[0].folder, summary(0.5, 0.5, []) | {"rounds": 4})
    (done / DONE).touch()
    write_run(cells[3].folder, metrics="round,accuracy\n1,0.1\n2,0.1\n3,0.1\n")
    console = Console(width=80, height=30, color_system=None, file=io.StringIO())
    grid = Comparison(tmp_path, [], [cell.name for cell in cells])
    grid.add(configs[0], cells[0].summary, name=cells[0].name)
    live = sweep.LiveTable(cells, console, grid)
    write_run(cells[1].folder, found := summary(0.7, 0.5, []))
    grid.add(configs[1], Summary.model_validate(found), name=cells[1].name)
    grid.add(configs[2], None, "it diverged", cells[2].name)
    live.ended()
    live.update()
    console.print(live.drawn())
    words = [line.split() for line in console.file.getvalue().splitlines() if "fed" in line or "runs" in line]
    header, first, second, bar = words
    assert header == ["runs", "rounds", "accuracy,", "%"]
    assert first == ["fedavg-fedbn-plain", "2/2", "8/8", "60.0", "±", "14.1"]
    assert second == ["fedadam-fedbn-plain", "1/2", "7/8", "1", "failed"]
    assert bar[:3] == ["4", "runs,", "rounds"]
    assert "15/16" in bar
    low = Console(width=80, height=8, file=io.StringIO())
    low.print(sweep.LiveTable(cells, low, grid).drawn())
    assert "fedavg" not in low.file.getvalue()


def test_the_table_of_runs_with_other_metrics_names_those_of_each_row(configured, tmp_path):
    configs = [configured(strategy=name) for name in ("fedavg", "fedadam")]
    cells, console = cells_of(configs, [], tmp_path), Console(width=80, height=30, file=io.StringIO())
    grid = Comparison(tmp_path)
    for cell, by in zip(cells, ("accuracy", "loss"), strict=True):
        write_run(cell.folder, found := summary(0.5, 0.5, []) | {"compared-by": by})
        grid.add(cell.config, Summary.model_validate(found), name=cell.name)
    console.print(sweep.LiveTable(cells, console, grid).drawn())
    lines = [line.split() for line in console.file.getvalue().splitlines() if line.strip()]
    assert lines[0] == ["runs", "rounds", "metric"]
    assert lines[2][-3:] == ["50.0", "(accuracy,", "%)"]
    assert lines[3][-2:] == ["1.0000", "(loss)"]


@pytest.mark.parametrize("live", [True, False])
def test_a_sweep_is_told_in_a_live_table_or_in_lines(swept, capsys, monkeypatch, live):
    tables = []

    class Watched(sweep.LiveTable):
        def update(self):
            super().update()
            tables.append(sum(self._rounds.values()))

    monkeypatch.setattr(sweep, "is_live", lambda _: live)
    monkeypatch.setattr(sweep, "LiveTable", Watched)
    assert swept("--seed 0,1 --rounds 1 --run-dir g") == 0
    told = capsys.readouterr().out.splitlines()
    assert tables == ([0, 1, 2] if live else [])
    assert sum(": round " in line for line in told) == (0 if live else 2)
    assert sum(": 1 round  accuracy " in line for line in told) == (0 if live else 2)


def test_started_again_a_sweep_runs_what_is_new(swept, capsys):
    assert swept("--sweep client-lr=0.1 --rounds 1 --run-dir g") == 0
    (first,) = rows()
    assert (first["client-lr"], first["seed"], first["status"]) == ("0.1", "0", "ok")
    assert json.loads(Path("g/experiment.json").read_text())["client-lr"] == ["0.1"]
    assert len(ran(capsys)) == 1
    assert swept("--sweep client-lr=0.1,1 --seed 0,1 --rounds 1 --run-dir g") == 0
    assert [row["client-lr"] for row in rows()] == ["0.1"] * 2 + ["1.0"] * 2
    assert len(ran(capsys)) == 3
    assert rows()[0]["seconds"] == first["seconds"]
    assert swept("--resume g") == 0
    assert ran(capsys) == []
    header, _, *lines = Path("g/grid.md").read_text().split("\n\n")[0].splitlines()
    assert header.startswith("| strategy | client | objective | client-lr | mean over examples |")
    assert len(lines) == 2


@pytest.mark.slow
@pytest.mark.parametrize("checkpoints", [1, 0])
def test_an_interrupted_sweep_ends_as_if_it_had_not_been(swept, capsys, monkeypatch, checkpoints):
    """The run that was begun goes on from its checkpoint, or starts anew without one."""
    words = f"--sweep client-lr=0.01,0.1 --rounds 3 --checkpoint-every {checkpoints}"
    assert swept(words, "--run-dir", "whole") == 0
    ran(capsys)
    with monkeypatch.context() as patched:
        interrupt_at(patched, B, 2)
        assert swept(words, "--run-dir", "g") == 130
    assert ran(capsys) == [(A, 1), (A, 2), (A, 3), (B, 1), (B, 2)]
    assert len(rows()) == 1
    assert swept(words, "--run-dir", "g") == 0
    assert ran(capsys) == [(B, i) for i in ([3] if checkpoints else [1, 2, 3])]
    assert Path("g/grid.md").read_text() == Path("whole/grid.md").read_text()
    for name in (A, B):
        assert Path(f"g/{name}/model.safetensors").read_bytes() == (
            Path(f"whole/{name}/model.safetensors").read_bytes()
        )
    timeless = [[{k: v for k, v in row.items() if k != "seconds"} for row in rows(f)] for f in ("g", "whole")]
    assert timeless[0] == timeless[1]


def test_a_failed_run_is_reported_stops_no_other_and_is_tried_again(swept, capsys):
    """A rate of 1e30 diverges in every round; with the sane rates beside it the exit status is 1."""
    words = "--sweep client-lr=1e30,0.1 --rounds 1 --run-dir g"
    problem = (
        "every client failed in every round; the model was never updated; 2 of 2 failures: "
        "FloatingPointError: training diverged: 1.weight is not finite; take a smaller client-lr than 1e+30"
    )
    assert swept(words) == 1
    assert [row["status"] for row in rows()] == [problem, "ok"]
    header, _, failed, fine = Path("g/grid.md").read_text().split("\n\n")[0].splitlines()
    assert header.endswith("| failed |")
    assert f"seed 0: {problem} |" in failed
    assert fine.endswith("|  |")
    output = capsys.readouterr()
    assert f"client-lr=1e+30-seed0 failed: {problem}\n" in output.err
    assert "failed" in output.out
    assert swept(words) == 1
    assert [name for name, _ in ran(capsys)] == ["fedyogi-fedbn-plain-client-lr=1e+30-seed0"]
    assert [row["status"] for row in rows()] == [problem, "ok"]


def test_an_algorithm_that_raises_on_the_server_is_a_failed_run(swept, tmp_path, capsys):
    (tmp_path / "own.py").write_text(
        "from strategies import FedAvg\n\n\nclass Broken(FedAvg):\n"
        "    def aggregate_train(self, server_round, replies):\n        raise ValueError('my | own')\n"
    )
    assert swept("--strategy own.py:Broken,fedavg --rounds 1 --run-dir g") == 1
    name = f"{tmp_path / 'own.py'}"
    output = f"strategy: '{name}:Broken' raised ValueError: my | own ({name}, line 6)"
    assert [row["status"] for row in rows()] == [output, "ok"]
    assert "raised ValueError: my \\| own (" in Path("g/grid.md").read_text()


def test_more_rounds_go_on_with_every_run_and_fewer_are_refused(two, swept, capsys):
    """Also of a version without a key, which has its default."""
    for path in Path("g").glob("*/config.json"):
        known = json.loads(path.read_text())
        assert known.pop("stop-at-target") is False
        path.write_text(json.dumps(known))
    assert swept("--resume g --rounds 2") == 0
    assert [server_round for _, server_round in ran(capsys)] == [2, 2]
    assert swept("--resume g --rounds 1") == 2
    assert capsys.readouterr().err == (
        "error: rounds: 1 is not allowed; expected at least the 2 done so far (g/fedyogi-fedbn-plain-seed0)\n"
    )


def test_another_configuration_in_a_runs_place_is_one_line(two, swept, capsys):
    before = Path("g/experiment.json").read_text()
    assert swept("--seed 0,1 --rounds 1 --run-dir g --client-lr 0.3") == 2
    assert capsys.readouterr().err == (
        "error: client-lr: 0.3 is not allowed; expected 0.05, as in the run to resume "
        "(g/fedyogi-fedbn-plain-seed0)\n"
    )
    assert Path("g/experiment.json").read_text() == before
    assert swept("--resume g --client-lr 0.3") == 2
    assert "client-lr: '0.3' is not allowed; expected with resume only" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["config.json", "notes.txt"])
def test_a_sweep_goes_into_no_folder_but_a_sweeps(swept, capsys, tmp_path, content):
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / content).write_text("{}")
    assert swept("--seed 0,1 --run-dir g") == 2
    assert capsys.readouterr().err == (
        "error: run-dir: 'g' is not allowed; expected a new or empty folder, or the folder of a sweep\n"
    )


@pytest.mark.slow
def test_a_sweeps_folder_is_one_processs_at_a_time(swept, capsys, tmp_path):
    with sweep.lock_sweep_folder(tmp_path / "g"):
        assert swept("--seed 0,1 --run-dir g") == 2
    assert "expected a folder that no running process writes to" in capsys.readouterr().err
    assert swept("--seed 0,1 --rounds 1 --run-dir g") == 0  # the lock file alone is as good as nothing


def test_a_run_killed_before_it_wrote_anything_starts_anew(two, swept, tmp_path, capsys):
    place = tmp_path / "g" / "fedyogi-fedbn-plain-seed1"
    for path in place.rglob("*"):
        if path.is_file() and path.name != ".lock":
            path.unlink()
    assert swept("--resume g") == 0
    assert ran(capsys) == [("fedyogi-fedbn-plain-seed1", 1)]
    assert (place / DONE).exists()


def test_what_is_wrong_in_any_run_is_reported_before_anything_starts(swept, capsys, tmp_path):
    assert swept("--sweep dataset=digits,/nowhere --run-dir g") == 2
    assert capsys.readouterr().err.startswith("error: dataset: no such file or folder: '/nowhere'")
    assert not (tmp_path / "g").exists()


def test_two_files_of_one_name_are_two_runs(swept, tmp_path, capsys):
    """Versions of a rule side by side: each has a folder and a row, with the whole name."""
    for folder, rate in (("v1", 1.0), ("v2", 0.0)):
        (tmp_path / folder).mkdir()
        rule = (
            "from strategies import PseudoGradientStrategy\n\n\nclass Mine(PseudoGradientStrategy):\n"
            f"    def server_step(self, delta, state, round):\n        return {rate} * delta\n"
        )
        (tmp_path / folder / "rule.py").write_text(rule)
    names = [f"{tmp_path}/{folder}/rule.py:Mine" for folder in ("v1", "v2")]
    words = f"--strategy {','.join(names)} --client shared --rounds 1 --run-dir g"
    assert swept(words) == 0
    first, second = rows()
    assert [first["strategy"], second["strategy"]] == names
    assert first["folder"] != second["folder"]
    assert first["accuracy: global"] != second["accuracy: global"]
    assert swept(words) == 0
    assert "2 of 2 runs are already done" in capsys.readouterr().out

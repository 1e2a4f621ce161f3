"""The folder of an app's run, read by what reads any run's."""

import json
import re
import shutil

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedbn_flower import run_app
from fedbn_flower.apps.reading import run_of_app
from fedbn_flower.cli import main

from .written import LEGACY_CLIENT, LEGACY_SERVER, write_app


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return write_app(tmp_path_factory.mktemp("apps") / "app")


def ran(app, folder, **how):
    return run_app(app, num_supernodes=3, run_dir=folder, backend="inline", progress=False, **how)


@pytest.fixture(scope="module")
def recorded(app, tmp_path_factory):
    """The mean of what clients add, the accuracy, is twice the rate a round."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return ran(app, folder, run_config={"lr": 0.125, "name": "a b"}, seed=7).folder


@pytest.fixture
def folder(recorded, tmp_path):
    return shutil.copytree(recorded, tmp_path / "run")


def texts(path):
    """The words of a page."""
    return " ".join(re.sub(r"<style.*?</style>|<[^>]+>", " ", path.read_text(), flags=re.S).split())


def test_a_report_of_an_apps_run(folder):
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["rounds"], summary["aggregated"], summary["failures"]) == (2, {"accuracy": 0.5}, 0)
    assert main(["report", str(folder)]) == 0
    page = texts(folder / "report.html")
    assert "nobody/small-app on 3 virtual nodes" in page
    assert "lr=0.125, name=&quot;a b&quot;" in page
    assert "; seed 7. The 2 rounds took " in page
    assert "model accuracy clients, as aggregated 50.0 %" in page
    assert "Accuracy by round" in page
    assert "Loss by round" in page
    command = "--run-config &#x27;lr=0.125 name=&quot;a b&quot;&#x27; --num-supernodes 3 --seed 7"
    assert command in page
    assert "None" not in page
    assert "Mean over examples" not in page


def test_runs_of_an_app_are_compared(tmp_path, app, capsys):
    pytest.importorskip("fedbn_flower.study")
    for number in (1, 2):
        ran(app, tmp_path / f"r{number}", run_config={"lr": number / 20}, seed=number)
    assert main(["compare", str(tmp_path / "r1"), str(tmp_path / "r2"), "--to", str(tmp_path / "to")]) == 0
    printed = capsys.readouterr().out
    assert "All app nobody/small-app, 3 virtual nodes." in printed
    assert "None" not in printed
    table = (tmp_path / "to" / "compare.md").read_text()
    assert re.search(r"\| r1 +\| +20\.0 +\|", table)
    assert re.search(r"\| r2 +\| +40\.0 +\|", table)
    assert re.search(r"\| run-config\.lr +\| 0\.05 +\| 0\.1 +\|", table)
    assert "may be the best" not in table


def test_the_index_of_runs_finds_an_apps_by_its_keys(folder):
    index = pytest.importorskip("fedbn_flower.watch.index").Index(folder.parent)
    index.refresh()
    (found,) = index.chosen("run-config.lr=0.125 and accuracy>0.4")
    assert (found.name, found.state, found.run.rounds_done) == ("run", "ended", 2)
    assert not index.chosen("accuracy>0.6")


def test_a_tracker_gets_every_round_of_an_app(tmp_path, app, capsys):
    pytest.importorskip("fedbn_flower.trackers")
    ran(app, tmp_path / "run", track="tensorboard", run_config={"lr": 0.125})
    found = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    accuracy = [(one.step, one.value) for one in found.Scalars("evaluate-accuracy")]
    assert accuracy == [(1, 0.25), (2, 0.5)]
    assert main(["app", str(app), "--track", "nobody"]) == 2
    assert "error: track: 'nobody' is not allowed; expected one of none," in capsys.readouterr().err


def test_a_legacy_app_has_its_servers_evaluation(tmp_path):
    """Round 0 is measured by the server alone; the means are 14/6 a round."""
    ran(write_app(tmp_path / "app", LEGACY_SERVER, LEGACY_CLIENT), tmp_path / "run")
    run = run_of_app(tmp_path / "run", "report")
    assert run.points("global-loss") == pytest.approx({0: 0, 1: 14 / 6, 2: 28 / 6})
    assert run.points("loss") == pytest.approx({1: 14 / 6, 2: 28 / 6})
    assert run.summary.global_["loss"] == pytest.approx(28 / 6)
    assert run.main_metric == "loss"


def test_names_that_mean_something_else_here_stay_as_they_are(folder):
    (folder / "metrics.csv").write_text(
        "round,train-loss,evaluate-loss,evaluate-train-loss,evaluate-round,evaluate-note,server-loss\n"
        "1,1,2,3,4,good,5\n"
    )
    run = run_of_app(folder, "report")
    expected = {"train-loss": 1, "loss": 2, "evaluate-train-loss": 3, "evaluate-round": 4, "global-loss": 5}
    assert {name: run.points(name)[1] for name in expected} == expected
    assert "note" not in run.told.metrics
    assert main(["report", str(folder)]) == 0


def test_of_strategies_in_turn_the_last_is_shown(folder):
    (folder / "metrics.csv").write_text("start,round,evaluate-loss\n1,1,9\n1,2,8\n2,1,5\n2,2,4\n")
    assert run_of_app(folder, "report").points("loss") == {1: 5, 2: 4}

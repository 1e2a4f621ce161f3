"""Whole searches: what they write, tell and look at, and how they go on."""

import csv
import json
import shlex
from pathlib import Path

import pytest

from fedbn_flower import cli
from fedbn_flower.search import trial
from fedbn_flower.search.search_folder import COMPLETE, FAILED, PRUNED, TrialTable

from .conftest import table

JOB = "--search server-lr=1e-3..1 --trials"


def columns(file):
    return next(csv.reader(file.read_text().splitlines()))


def test_trials_never_see_the_test_set_and_the_best_does_once(search, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["run_sim.py"])
    folder = tmp_path / "s"
    assert search(f"{JOB} 2 --rounds 1 --run-dir s") == 0
    rows = table(folder)
    assert list(rows[0]) == ["trial", "state", "rounds", "value", "server-lr", "folder"]
    assert [row["folder"] for row in rows] == [f"trials/{i}" for i in range(2)]
    for row in rows:
        place = folder / row["folder"]
        assert not [
            c for name in ("clients", "metrics") for c in columns(place / f"{name}.csv") if "test" in c
        ]
        summary = json.loads((place / "summary.json").read_text())
        assert float(row["value"]) == summary["mean"]["accuracy"]
    best = max(rows, key=lambda row: float(row["value"]))
    found = json.loads((folder / "search.json").read_text())["best"]
    assert (str(found["trial"]), found["values"]) == (best["trial"], {"server-lr": float(best["server-lr"])})
    assert found["value"] == float(best["value"])
    summary = json.loads((folder / "best" / "summary.json").read_text())
    assert found["test"] == summary["mean"]["accuracy"] != found["value"]
    assert "test-accuracy" in columns(folder / "best" / "clients.csv")
    out = capsys.readouterr().out
    assert "val-fraction: 0.1 of the training set is held out" in out
    assert f"on the test set, used this once: {100 * found['test']:.1f} %" in out
    assert found["command"] in out
    assert cli.main([*shlex.split(found["command"])[2:], "--run-dir", "again"]) == 0
    again = json.loads(Path("again/summary.json").read_text())
    assert again["clients"] == summary["clients"]


@pytest.mark.slow
def test_done_it_is_reported_again_and_more_trials_go_on(search, tmp_path):
    assert search(f"{JOB} 3 --run-dir whole") == 0
    assert search(f"{JOB} 1 --run-dir parts") == 0
    written = (tmp_path / "parts/best/summary.json").stat().st_mtime_ns
    assert search(f"{JOB} 1 --run-dir parts") == 0
    assert (tmp_path / "parts/best/summary.json").stat().st_mtime_ns == written
    assert search("--resume parts --trials 2") == 0
    assert search(f"{JOB} 3 --run-dir parts") == 0
    assert table(tmp_path / "parts") == table(tmp_path / "whole")
    assert len(table(tmp_path / "parts")) == 3
    facts = [json.loads((tmp_path / name / "search.json").read_text()) for name in ("parts", "whole")]
    assert facts[0]["best"] == facts[1]["best"]


def interrupt(monkeypatch, cls, method, calls):
    """Have a method end the process with that call, before it does anything."""
    left, done = [calls], getattr(cls, method)

    def called(self, *arguments):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        done(self, *arguments)

    monkeypatch.setattr(cls, method, called)


@pytest.mark.slow
def test_interrupted_anywhere_it_ends_in_the_same_table(search, tmp_path, monkeypatch, capsys):
    """Within the first trial's rounds, within later ones, and after a trial was pruned, before its row."""
    assert search(f"{JOB} 7 --run-dir whole") == 0
    whole = table(tmp_path / "whole")
    assert {row["state"] for row in whole} == {COMPLETE, PRUNED}
    begun = f"{JOB} 7 --run-dir parts"
    for cls, method, calls in ((trial.TrialObserver, "report", 1), (trial.TrialObserver, "report", 18)):
        with monkeypatch.context() as patch:
            interrupt(patch, cls, method, calls)
            assert search(begun) == 130
        assert "to go on with it: " in capsys.readouterr().err
        begun = "--resume parts"
    last = max(i for i, row in enumerate(whole) if row["state"] == PRUNED)
    with monkeypatch.context() as patch:
        interrupt(patch, TrialTable, "add", last + 1 - len(table(tmp_path / "parts")))
        assert search(begun) == 130
    assert len(table(tmp_path / "parts")) == last
    assert search(begun) == 0
    assert table(tmp_path / "parts") == whole


@pytest.mark.slow
def test_a_trial_that_fails_is_reported_and_the_search_goes_on(search, tmp_path, capsys):
    assert search("--search client-lr=0.05,1e30 --trials 3 --run-dir s") == 0
    rows = table(tmp_path / "s")
    assert {(row["client-lr"], row["state"]) for row in rows} == {("0.05", COMPLETE), ("1e30", FAILED)}
    assert "client-lr 1e30 failed: every client failed" in capsys.readouterr().err
    written = (tmp_path / "s/best/config.json").stat().st_mtime_ns
    assert search("--resume s") == 0
    assert (tmp_path / "s/best/config.json").stat().st_mtime_ns == written
    assert search("--search client-lr=1e30,2e30 --trials 2 --run-dir t") == 1
    assert "every trial failed" in capsys.readouterr().err
    assert not (tmp_path / "t/best").exists()


@pytest.mark.slow
def test_where_no_client_evaluates_it_looks_at_the_global_model(search, tmp_path):
    assert search(f"{JOB} 1 --rounds 1 --run-dir s --fraction-evaluate 0 --final-test false") == 0
    row = table(tmp_path / "s")[0]
    summary = json.loads((tmp_path / "s/trials/0/summary.json").read_text())
    assert float(row["value"]) == summary["global"]["accuracy"]
    assert json.loads((tmp_path / "s/search.json").read_text())["best"]["test"] is None


@pytest.mark.parametrize(("metrics", "said"), [("none", True), ("auroc", False)])
def test_that_accuracy_says_little_of_a_rare_event_is_told(search, capsys, metrics, said):
    """Of 1,000 patients 40 died."""
    rows = [f"{number % 100},{int(number % 25 == 0)}" for number in range(1000)]
    Path("deaths.csv").write_text("\n".join(["x,died", *rows]))
    job = "--dataset deaths.csv --label-column died --partition iid --num-clients 2 --model linear"
    assert search(f"{JOB} 1 --rounds 1 --run-dir s {job} --metrics {metrics}") == 0
    words = (
        "accuracy, by which trials are compared, says little of an event in 4.0 % of all examples; --metrics"
    )
    assert (words in capsys.readouterr().out) == said


@pytest.mark.slow
def test_losses_are_to_be_low(search, tmp_path):
    rows = [f"{a},{b},{2 * a - b}" for a in range(-9, 9) for b in range(-9, 9)]
    Path("numbers.csv").write_text("\n".join(["a,b,label", *rows]))
    job = "--dataset numbers.csv --predict numbers --partition iid --model linear"
    assert search(f"--search client-lr=1e-7..1e-2 --trials 5 --run-dir s {job}") == 0
    rows = table(tmp_path / "s")
    best = json.loads((tmp_path / "s/search.json").read_text())["best"]
    assert best["compared-by"] == "loss"
    assert (
        best["value"] == min(float(row["value"]) for row in rows) < max(float(row["value"]) for row in rows)
    )


MISTAKES = {
    f"{JOB} 1 --run-dir s --seed 1": "seed: 1 is not allowed; expected 0, as in the search of 's'",
    "--search server-lr=1e-3..2 --run-dir s": "search: 'server-lr=0.001..2.0' is not allowed; expected",
    "--search tau=1e-3..2 --run-dir s": "search: 'tau=0.001..2.0' is not allowed; expected",
    "--resume s --seed 5": "seed: '5' is not allowed; expected with resume only backend",
    f"{JOB} 1 --run-dir other": "run-dir: 'other' is not allowed; expected a new or empty folder",
    "--search local-epochs=1,-1": "local-epochs: '-1' is not allowed; expected a whole number >= 1",
    f"{JOB} 1 --dataset quadratic:3 --partition iid": "val-fraction: 0.1 is not allowed; expected 0 ",
}


def test_mistakes_are_reported(search, tmp_path, capsys):
    assert search("--search server-lr=1e-3..1 --trials 1 --run-dir s --client-lr 1e30") == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    capsys.readouterr()
    for arguments, output in MISTAKES.items():
        given = "" if "--resume" in arguments else "--client-lr 1e30"
        assert search(f"{arguments} {given}") == 2
        assert capsys.readouterr().err.startswith(f"error: {output}"), arguments


def test_a_search_with_differential_privacy_is_refused(search, tmp_path, capsys):
    """Which trial is best would be published, and clients' metrics decide it."""
    private = "--dp client --dp-noise 1 --dp-delta 1e-3 --client silobn"
    assert search(f"{JOB} 3 --run-dir s {private}") == 2
    line = "error: dp: 'client' is not allowed; expected 'none' with a search: clients' metrics would decide"
    assert capsys.readouterr().err.startswith(line)
    assert not (tmp_path / "s").exists()


def test_trials_have_nothing_to_recalibrate(search, tmp_path):
    assert (
        search(f"{JOB} 1 --rounds 1 --run-dir s --eval-data local --recalibrate temperature --client fedbn")
        == 0
    )
    trial, best = (
        json.loads((tmp_path / "s" / name / "summary.json").read_text()) for name in ("trials/0", "best")
    )
    assert "recalibrated" not in trial
    assert best["recalibrated"]["method"] == "temperature"

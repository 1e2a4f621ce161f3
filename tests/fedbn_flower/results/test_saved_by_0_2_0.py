"""A run, a sweep and a search as version 0.2.0 saved them: they resume, report and load.

``version_0_2_0.zip`` holds a run stopped after round 2 of 4 (FedYogi, FedBN, MOON), what the whole run
came to, a sweep that lacks one of its four cells, and a search of three trials.
"""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedbn_flower import cli, load_model

SAVED = Path(__file__).with_name("version_0_2_0.zip")


@pytest.fixture
def pictures_not_drawn():
    """They are drawn here: reports are looked at."""


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.unpack_archive(SAVED, tmp_path)
    return tmp_path


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def assert_close(path, expected):
    """To float32 rounding: another machine may multiply in another order."""
    got, wanted = load_file(path), load_file(expected)
    assert got.keys() == wanted.keys()
    for name, entry in wanted.items():
        np.testing.assert_allclose(got[name], entry, rtol=1e-3, atol=1e-4, err_msg=name)


def test_the_run_goes_on_to_what_that_version_came_to(saved):
    assert cli.main(["--resume", "run", "--rounds", "4"]) == 0
    assert_close(saved / "run/model.safetensors", saved / "whole/model.safetensors")
    got, wanted = (json.loads((saved / name / "summary.json").read_text()) for name in ("run", "whole"))
    assert wanted.keys() <= got.keys()
    for client, figures in wanted["clients"].items():
        assert got["clients"][client] == pytest.approx(figures, abs=0.02)
    for table in ("metrics.csv", "clients.csv"):
        now, then = rows(saved / "run" / table), rows(saved / "whole" / table)
        assert now[0].keys() >= then[0].keys()
        key = [column for column in ("round", "phase", "partition") if column in then[0]]
        assert [[row[k] for k in key] for row in now] == [[row[k] for k in key] for row in then]


def test_its_models_load_and_its_report_is_written_anew(saved):
    entries = [load_model("run", client).state_dict() for client in (0, 1)]
    shared = load_file("run/model.safetensors")
    for name, entry in shared.items():
        assert all(np.array_equal(own[name].numpy(), entry) for own in entries)
    assert any(
        not np.array_equal(a.numpy(), b.numpy()) for a, b in zip(*(e.values() for e in entries), strict=True)
    )
    assert cli.main(["report", "run"]) == 0
    assert "fedyogi" in (saved / "run/report.html").read_text()


def test_the_sweep_runs_its_missing_cell_only(saved):
    cell = saved / "sweep/fedavg-fedavg-sgd-seed0/metrics.csv"
    before = cell.read_bytes()
    assert cli.main(["--resume", "sweep"]) == 0
    assert cell.read_bytes() == before
    assert (saved / "sweep/fedadam-fedavg-sgd-seed1/summary.json").exists()
    table = (saved / "sweep/grid.md").read_text()
    assert "over 2 seeds" in table
    assert "| fedadam | fedavg | sgd |" in table


def test_the_search_goes_on_with_further_trials(saved):
    assert cli.main(["--resume", "search", "--trials", "4"]) == 0
    trials = rows(saved / "search/search.csv")
    assert [row["state"] for row in trials] == ["complete"] * 4
    assert trials[0]["client-lr"] == "0.08127691813917182"


def test_its_further_trials_are_compared_by_the_metric_that_its_trials_were(saved, caplog):
    """That of the clients, not the server's, which decides by default since."""
    assert cli.main(["--resume", "search", "--trials", "4"]) == 0
    written = json.loads((saved / "search/trials/3/config.json").read_text())
    assert (written["decide-by"], written["unused"]) == ("pooled", [])
    assert "unused" not in caplog.text
    assert cli.main(["--resume", "search", "--trials", "5"]) == 0
    assert json.loads((saved / "search/search.json").read_text())["configuration"]["decide-by"] == "pooled"

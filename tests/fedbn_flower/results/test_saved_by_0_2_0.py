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

from fedbn_flower import cli, load_model, simulate

from .written import csv_rows

SAVED = Path(__file__).with_name("version_0_2_0.zip")


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.unpack_archive(SAVED, tmp_path)
    return tmp_path


def assert_close(path, expected):
    """To float32 rounding: another machine may multiply in another order."""
    got, wanted = load_file(path), load_file(expected)
    assert got.keys() == wanted.keys()
    for name, entry in wanted.items():
        np.testing.assert_allclose(got[name], entry, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_the_run_goes_on_to_what_that_version_came_to(saved):
    assert cli.main(["--resume", "run", "--rounds", "4"]) == 0
    assert_close(saved / "run/model.safetensors", saved / "whole/model.safetensors")
    got, wanted = (json.loads((saved / name / "summary.json").read_text()) for name in ("run", "whole"))
    assert wanted.keys() <= got.keys()
    for client, figures in wanted["clients"].items():
        assert got["clients"][client] == pytest.approx(figures, abs=0.02)
    for table in ("metrics.csv", "clients.csv"):
        now, then = csv_rows(saved / "run" / table), csv_rows(saved / "whole" / table)
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


@pytest.mark.slow
def test_the_sweep_runs_its_missing_cell_only(saved):
    pytest.importorskip("fedbn_flower.sweeps")
    cell = saved / "sweep/fedavg-fedavg-sgd-seed0/metrics.csv"
    before = cell.read_bytes()
    assert cli.main(["--resume", "sweep"]) == 0
    assert cell.read_bytes() == before
    assert (saved / "sweep/fedadam-shared-plain-seed1/summary.json").exists()
    table = (saved / "sweep/grid.md").read_text()
    assert "over 2 seeds" in table
    assert "| fedadam | shared | plain |" in table


@pytest.mark.slow
def test_the_search_goes_on_and_compares_by_the_metric_that_it_did(saved, caplog):
    """That of the clients, not the server's, which decides by default since. Some of its keys are gone."""
    pytest.importorskip("fedbn_flower.search")
    for table in ("values", "configuration"):
        write_in_old_keys(saved / "search/search.json", table)
    assert cli.main(["--resume", "search", "--trials", "4"]) == 0
    trials = csv_rows(saved / "search/search.csv")
    assert [row["state"] for row in trials] == ["complete"] * 4
    assert trials[0]["client-lr"] == "0.08127691813917182"
    written = json.loads((saved / "search/trials/3/config.json").read_text())
    assert (written["decide-by"], written["unused"]) == ("pooled", [])
    assert written.items() >= NEW.items()
    assert "unused" not in caplog.text
    assert cli.main(["--resume", "search", "--trials", "5"]) == 0
    assert json.loads((saved / "search/search.json").read_text())["configuration"]["decide-by"] == "pooled"
    assert cli.main(["report", "search"]) == 0


# ---- keys that are gone ------------------------------------------------------------------------------


GONE = {"client-lr-decay": 0.7, "target-accuracy": 0.5, "tensorboard": False}
NEW = {"client-lr-schedule": "exponential:0.7", "target": "accuracy=0.5", "track": "none"}


def write_in_old_keys(file, table=None):
    """Rewrite a configuration as 0.2.0 would have written it."""
    content = json.loads(file.read_text())
    values = content[table] if table else content
    for (old, value), (new, form) in zip(GONE.items(), NEW.items(), strict=True):
        values.pop(new, form)
        values[old] = value
    file.write_text(json.dumps(content))


def without_column(file, name):
    """Rewrite a table without a column, which that version did not write."""
    found = csv_rows(file)
    with file.open("w", newline="") as output:
        writer = csv.DictWriter(
            output, [column for column in found[0] if column != name], extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows(found)


@pytest.fixture
def decaying(run):
    keys = {"client_lr_schedule": "exponential:0.7", "target": "accuracy=0.5", "objective": "moon"}
    return lambda **more: run(**keys, **more).folder


@pytest.mark.slow
def test_a_run_with_a_decay_goes_on_to_the_bits_of_one_that_never_stopped(decaying):
    whole, folder = decaying(rounds=4, run_dir="whole"), decaying(rounds=2, run_dir="run")
    write_in_old_keys(folder / "config.json")
    without_column(folder / "metrics.csv", "client-lr")
    assert load_model(folder, 1)
    assert cli.main(["report", str(folder)]) == 0
    assert "<td>client-lr-schedule</td><td>exponential:0.7</td>" in (folder / "report.html").read_text()
    simulate(resume=folder, rounds=4, progress=False)
    assert (folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert [row["client-lr"] for row in csv_rows(folder / "metrics.csv")] == [
        *("", ""),
        *(str(0.05 * 0.7**t) for t in (2, 3)),
    ]
    now, then = (json.loads((path / "summary.json").read_text()) for path in (folder, whole))
    assert now["rounds-to-target"] == then["rounds-to-target"]


def test_its_configuration_is_an_experiment_in_the_new_keys(saved):
    pytest.importorskip("fedbn_flower.sweeps")
    file = saved / "whole-config.json"
    shutil.copy(saved / "run/config.json", file)
    write_in_old_keys(file)
    assert cli.main(["--experiment", str(file), "--rounds", "1", "--run-dir", "again"]) == 0
    written = json.loads((saved / "again/config.json").read_text())
    assert written.items() >= NEW.items()
    assert not written.keys() & GONE.keys()


@pytest.mark.slow
def test_a_sweep_over_a_decay_has_its_done_cells_in_their_folders(saved):
    pytest.importorskip("fedbn_flower.sweeps")
    cells = {
        decay: saved / f"sweep/fedavg-fedavg-sgd-client-lr-decay={decay}-seed0" for decay in ("0.7", "1.0")
    }
    stored = json.loads((saved / "sweep/experiment.json").read_text())
    stored |= {"strategy": "fedavg", "seed": "0", "client-lr-decay": ["0.7", "1.0"], "target-accuracy": "0.5"}
    (saved / "sweep/experiment.json").write_text(json.dumps(stored))
    (saved / "sweep/fedavg-fedavg-sgd-seed0").rename(cells["0.7"])
    write_in_old_keys(cells["0.7"] / "config.json")
    before = (cells["0.7"] / "metrics.csv").read_bytes()
    assert cli.main(["--resume", "sweep"]) == 0
    assert (cells["0.7"] / "metrics.csv").read_bytes() == before
    assert not cells["1.0"].exists()
    folders = {row["client-lr-schedule"]: row["folder"] for row in csv_rows(saved / "sweep/grid.csv")}
    new = "fedavg-shared-plain-client-lr-schedule=constant-seed0"
    assert folders == {"exponential:0.7": cells["0.7"].name, "constant": new}
    assert (saved / "sweep" / new / "summary.json").exists()
    assert cli.main(["report", "sweep"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("space", ["0.7,1.0", "0.7..1.0"])
def test_a_search_of_decays_goes_on_but_for_a_range(saved, capsys, space):
    pytest.importorskip("fedbn_flower.search")
    file, table = saved / "search/search.json", saved / "search/search.csv"
    stored = json.loads(file.read_text())
    del stored["configuration"]["client-lr-decay"]
    file.write_text(json.dumps(stored | {"search": {"client-lr-decay": space}}))
    found = [
        {
            "client-lr-decay" if key == "client-lr" else key: "0.7" if key == "client-lr" else v
            for key, v in row.items()
        }
        for row in csv_rows(table)
    ]
    with table.open("w", newline="") as output:
        writer = csv.DictWriter(output, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    ended = cli.main(["--resume", "search", "--trials", "4"])
    if ".." in space:
        line = (
            "error: resume: the search in 'search' is of client-lr-decay=0.7..1.0, a range of a key that is"
        )
        assert (ended, capsys.readouterr().err) == (2, f"{line} gone\n")
        return
    assert ended == 0
    values = [row["client-lr-schedule"] for row in csv_rows(table)]
    assert values[:3] == ["exponential:0.7"] * 3
    assert values[3] in ("exponential:0.7", "constant")

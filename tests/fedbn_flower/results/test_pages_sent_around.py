"""What leaves with a page or a table: no folders, a date, what the bytes are, and names of sites."""

import json
import re
import shutil
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from fedbn_flower.results.report.html import without_folders
from fedbn_flower.results.report.run_page import run_page, size
from fedbn_flower.results.run_reader import Run

from .written import csv_rows


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/me/data/x.csv", "x.csv"),
        ("/data", "data"),
        ("~/data/x.csv", "x.csv"),
        ("--dataset /home/me/x.csv --model '/a/b.py:net'", "--dataset x.csv --model 'b.py:net'"),
        ("tokens:/a/b.json:/c/d", "tokens:b.json:d"),
        ("(/a/b/c), [/a/b]; `/x/y.py:rule`", "(c), [b]; `y.py:rule`"),
        ("and/or, n/a, 1 / 2, mg /dl, kB/s", "and/or, n/a, 1 / 2, mg /dl, kB/s"),
        ("https://doi.org/10.1/x, url={https://a.b/c/d}", "https://doi.org/10.1/x, url={https://a.b/c/d}"),
        ("../x/y, x/y.csv", "../x/y, x/y.csv"),
        ("/home/me/m y/x.py:net", "x.py:net"),
        ("~/m y/x y.py", "x y.py"),
        ("tokens:/a b/c.json:/c d/e", "tokens:c.json:e"),
        ("--model '/a b/c d/x.py:net' --dataset 'n/a'", "--model 'x.py:net' --dataset 'n/a'"),
        ("it's `/home/me/m y/x.py:net`, and/or 'a b/c'", "it's `x.py:net`, and/or 'a b/c'"),
        ("", ""),
    ],
)
def test_of_an_absolute_path_the_last_part_is_left(text, left):
    assert without_folders(text) == left


@pytest.fixture
def of_files(run, tmp_path):
    """A run on files, whose model is a file of the user's, in a folder with a space in its name."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "patients"
    folder.mkdir()
    for site in ("Lyon", "=Turin"):
        frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
        frame.assign(ill=np.arange(60) % 2).to_csv(folder / f"{site}.csv", index=False)
    model = tmp_path / "ward seven" / "mine.py"
    model.parent.mkdir()
    model.write_text(
        "from torch import nn\n\n\ndef net(spec):\n    return nn.Linear(*spec.shape, spec.outputs)\n"
    )
    keys = {"dataset": str(folder), "label_column": "ill=0|1", "partition": "natural:file", "num_clients": 2}
    return lambda **more: run(**keys, model=f"{model}:net", client="shared", **more)


@pytest.mark.usefixtures("drawn_figures")
def test_nothing_written_of_a_run_names_its_folders(of_files, tmp_path):
    methods = pytest.importorskip("fedbn_flower.study.methods").methods
    model_card = pytest.importorskip("fedbn_flower.study.methods").model_card
    found = Run.read(of_files(rounds=1).folder)
    for text in (run_page(found), model_card(found), methods(found)):
        assert "mine.py:net" in text
        assert str(tmp_path) not in text
        assert not re.search(r"[^\w<./]/(?:tmp|home|root|work)/|ward|seven/", text)
    assert str(tmp_path) in (found.folder / "config.json").read_text()


def test_the_page_has_the_date_and_a_run_that_goes_on_keeps_its_own_or_has_none(run, tmp_path):
    result = run(num_clients=2, rounds=1, checkpoint_every=1)
    config = json.loads((result.folder / "config.json").read_text())
    today = config.pop("date")
    assert today == datetime.now(UTC).date().isoformat()
    assert f" s on {today}." in run_page(Run.read(result.folder))
    for name, date in (("dated", {"date": "2020-02-29"}), ("undated", {})):
        folder = shutil.copytree(result.folder, tmp_path / name)
        path = folder / "config.json"
        path.write_text(json.dumps(config | date))
        run(resume=str(folder), rounds=2)
        assert {"date"} & json.loads(path.read_text()).keys() == date.keys()
        assert ("s on 2020-02-29." in run_page(Run.read(folder))) == bool(date)


@pytest.mark.slow
def test_it_is_said_what_the_bytes_are(of_files):
    """Each of two clients gets the model twice a round, 4 x 2 numbers of 4 bytes, and sends it once."""
    found = Run.read(of_files(rounds=3).folder)
    text = re.sub(r"\s+", " ", run_page(found))
    a_round = found.summary.bytes_sent / 3, found.summary.bytes_received / 3
    assert f"{size(a_round[0])} a round to the clients" in text
    assert f"{size(a_round[1])} a round from them" in text
    assert a_round[0] == pytest.approx(2 * a_round[1], rel=0.01)
    assert "further metrics follow" not in text
    assert "further metrics follow" in run_page(Run.read(of_files(metrics="auroc").folder))


def test_clients_csv_has_the_names_of_sites_where_there_are_some(of_files, run):
    result = of_files(rounds=1)
    found = csv_rows(result.folder / "clients.csv")
    assert [*found[0]][:5] == ["round", "phase", "partition", "site", "num-examples"]
    assert {(row["partition"], row["site"]) for row in found} == {("0", "'=Turin"), ("1", "Lyon")}
    assert set(result.clients["site"]) == {"'=Turin", "Lyon"}
    assert "site" not in csv_rows(run(num_clients=2, rounds=1).folder / "clients.csv")[0]


@pytest.mark.parametrize("named", [True, False])
def test_a_table_goes_on_as_it_was_begun(of_files, run, named):
    """One of an earlier version has no names."""
    folder = of_files(rounds=1, checkpoint_every=1).folder
    path = folder / "clients.csv"
    if not named:
        pd.read_csv(path, dtype=str).drop(columns="site").to_csv(path, index=False)
    run(resume=str(folder), rounds=2)
    found = csv_rows(path)
    assert {row["round"] for row in found} == {"1", "2"}
    assert all(("site" in row) == named for row in found)
    assert all(row["site"] in ("'=Turin", "Lyon") for row in found if named)

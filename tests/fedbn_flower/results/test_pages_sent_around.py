"""What leaves with a page or a table: no folders, a date, what the bytes are, and names of sites."""

import json
import re
import shutil
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest

from fedbn_flower import simulate
from fedbn_flower.results.report.html import without_folders
from fedbn_flower.results.report.run_page import run_page, size
from fedbn_flower.results.run_reader import Run

from .written import change_run, csv_rows


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/data", "data"),
        ("~/data/x.csv", "x.csv"),
        ("--dataset /home/me/x.csv --model '/a/b.py:net'", "--dataset x.csv --model 'b.py:net'"),
        ("tokens:/a/b.json:/c/d", "tokens:b.json:d"),
        ("(/a/b/c), [/a/b]; `/x/y.py:rule`", "(c), [b]; `y.py:rule`"),
        ("and/or, n/a, 1 / 2, mg /dl, kB/s", "and/or, n/a, 1 / 2, mg /dl, kB/s"),
        ("https://doi.org/10.1/x, url={https://a.b/c/d}", "https://doi.org/10.1/x, url={https://a.b/c/d}"),
        ("../x/y, x/y.csv", "../x/y, x/y.csv"),
        ("~/m y/x y.py", "x y.py"),
        ("tokens:/a b/c.json:/c d/e", "tokens:c.json:e"),
        ("--model '/a b/c d/x.py:net' --dataset 'n/a'", "--model 'x.py:net' --dataset 'n/a'"),
        ("it's `/home/me/m y/x.py:net`, and/or 'a b/c'", "it's `x.py:net`, and/or 'a b/c'"),
        ("", ""),
    ],
)
def test_of_an_absolute_path_the_last_part_is_left(text, left):
    assert without_folders(text) == left


@pytest.fixture(scope="module")
def of_files(cache_dir, tmp_path_factory, pictures_never_drawn, draws_always_few):
    """A run on files, whose model is a file of the user's, in a folder with a space in its name."""
    rng, place = np.random.default_rng(0), tmp_path_factory.mktemp("files")
    folder = place / "patients"
    folder.mkdir()
    for site in ("Lyon", "=Turin"):
        frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc"))
        frame.assign(ill=np.arange(60) % 2).to_csv(folder / f"{site}.csv", index=False)
    model = place / "ward seven" / "mine.py"
    model.parent.mkdir()
    model.write_text(
        "from torch import nn\n\n\ndef net(spec):\n    return nn.Linear(*spec.shape, spec.outputs)\n"
    )
    keys = {"dataset": str(folder), "label_column": "ill=0|1", "partition": "natural:file", "num_clients": 2}
    keys |= {"cache_dir": cache_dir, "backend": "inline", "progress": False, "rounds": 1}
    return simulate(**keys, model=f"{model}:net", client="shared", run_dir=place / "run")


@pytest.fixture
def folder(of_files, tmp_path):
    """A copy of its folder."""
    return shutil.copytree(of_files.folder, tmp_path / "run")


@pytest.mark.usefixtures("drawn_figures")
def test_nothing_written_of_a_run_names_its_folders(of_files):
    methods = pytest.importorskip("fedbn_flower.study.methods").methods
    model_card = pytest.importorskip("fedbn_flower.study.methods").model_card
    found = Run.read(of_files.folder)
    place = str(found.folder.parent)
    for text in (run_page(found), model_card(found), methods(found)):
        assert "mine.py:net" in text
        assert place not in text
        assert not re.search(r"[^\w<./]/(?:tmp|home|root|work)/|ward|seven/", text)
    assert place in (found.folder / "config.json").read_text()


@pytest.mark.slow
def test_the_page_has_the_date_and_a_run_that_goes_on_keeps_its_own_or_has_none(of_files, run, tmp_path):
    config = json.loads((of_files.folder / "config.json").read_text())
    today = config.pop("date")
    assert today == datetime.now(UTC).date().isoformat()
    assert f" s on {today}." in run_page(Run.read(of_files.folder))
    for name, date in (("dated", {"date": "2020-02-29"}), ("undated", {})):
        folder = shutil.copytree(of_files.folder, tmp_path / name)
        path = folder / "config.json"
        path.write_text(json.dumps(config | date))
        run(resume=str(folder), rounds=2)
        assert {"date"} & json.loads(path.read_text()).keys() == date.keys()
        assert (" s on 2020-02-29." in run_page(Run.read(folder))) == bool(date)


@pytest.mark.slow
def test_it_is_said_what_the_bytes_are(folder, run):
    """Each of two clients gets the model twice a round, 4 x 2 numbers of 4 bytes, and sends it once."""
    found = Run.read(run(resume=str(folder), rounds=2).folder)
    text = re.sub(r"\s+", " ", run_page(found))
    a_round = found.summary.bytes_sent / 2, found.summary.bytes_received / 2
    assert f"{size(a_round[0])} a round to the clients" in text
    assert f"{size(a_round[1])} a round from them" in text
    assert a_round[0] == pytest.approx(2 * a_round[1], rel=0.01)
    assert "further metrics follow" not in text
    change_run(folder, {"metrics": "auroc"})
    assert "further metrics follow" in run_page(Run.read(folder))


@pytest.mark.parametrize("named", [True, False])
def test_clients_csv_has_the_names_of_sites_and_goes_on_as_it_was_begun(of_files, folder, run, named):
    """One of an earlier version has no names."""
    path = folder / "clients.csv"
    found = csv_rows(path)
    assert [*found[0]][:5] == ["round", "phase", "partition", "site", "num-examples"]
    assert {(row["partition"], row["site"]) for row in found} == {("0", "'=Turin"), ("1", "Lyon")}
    assert set(of_files.clients["site"]) == {"'=Turin", "Lyon"}
    if not named:
        pd.read_csv(path, dtype=str).drop(columns="site").to_csv(path, index=False)
    run(resume=str(folder), rounds=2)
    found = csv_rows(path)
    assert {row["round"] for row in found} == {"1", "2"}
    assert all(("site" in row) == named for row in found)
    assert all(row["site"] in ("'=Turin", "Lyon") for row in found if named)

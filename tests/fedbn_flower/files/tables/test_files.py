"""Which files are a table, at sites too; what their names are, and how much of them fits."""

import gzip

import numpy as np
import pandas as pd
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.free_memory import opened
from fedbn_flower.data.statistics import features
from fedbn_flower.files.tables import header, table_files
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.site_facts import SiteCounts
from fedbn_flower.site.inputs import local_task

RNG = np.random.default_rng(0)
ODD = {"age>=65": ["a|b", "c=d", "e\\"] * 10, "a,b": range(30), "c|d": [0.5, 1.5] * 15}
ODD_TEXT = r'age>\=65=a\|b|c\=d|e\\,"a,b",c\|d'


def noise(count=160):
    """Noise sorted by label: only the number of a row says which label it has."""
    return pd.DataFrame({"a": RNG.normal(size=count), "label": np.arange(count) // (count // 2)})


def test_a_site_is_told_its_columns_without_the_index(configured, tmp_path):
    table = noise().assign(**{"b=c": ["x", "y"] * 80})
    table.to_csv(tmp_path / "t.csv")
    node = {"data-path": str(tmp_path / "t.csv"), "cache-dir": str(tmp_path / "cache")}
    with pytest.raises(UserError, match="columns: missing") as caught:
        local_task(configured(dataset="shape:3:2"), 0, node)
    assert str(caught.value).endswith(r"such as 'a,b\\=c=VALUE|VALUE'")
    task = local_task(configured(dataset="shape:3:2", columns=r"a,b\=c=x|y"), 0, node)
    assert task.train.columns["x"].shape == (128, 3)


def test_odd_names_and_values_travel(configured, load, tmp_path):
    """From the table to inspect, into the text of the key, and to a site and its counts."""
    pd.DataFrame(ODD | {"label": [0, 1, 1] * 10}).to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv")
    assert any(repr(ODD_TEXT) in note.text for note in data.notes)
    keys = {"dataset": str(tmp_path / "t.csv"), "partition": "iid"}
    here = inputs_of(configured(**keys))
    shown = features(here.dataset, here.partitions.train, "none")
    assert [(f.name, f.values) for f in shown] == [
        ("age>=65", ("a|b", "c=d", "e\\")), ("a,b", ()), ("c|d", ()),
    ]  # fmt: skip
    same = load(tmp_path / "t.csv", columns=ODD_TEXT)
    assert same.kind.facts == data.kind.facts
    np.testing.assert_array_equal(same.train.columns["x"], data.train.columns["x"])
    config = configured(dataset="shape:5:2", columns=ODD_TEXT)
    inputs = inputs_of(config, str(tmp_path / "t.csv"), str(tmp_path / "cache"))
    counts = SiteCounts.model_validate_json(SiteCounts.of(inputs, 0).model_dump_json())
    assert [(f.name, f.values) for f in counts.features] == [(f.name, f.values) for f in shown]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["train.csv", "test.pq", "other.csv"], {"train": {"": "train.csv"}, "test": {"": "test.pq"}}),
        (["Patients.CSV"], {"train": {"": "Patients.CSV"}}),
        (["lyon.csv", "turin.tsv", ".hidden.csv", "~$lyon.xlsx", "notes.txt"],
         {"train": {"lyon": "lyon.csv", "turin": "turin.tsv"}}),
        (["train/lyon.csv", "train/turin.csv.gz", "test/lyon.csv"],
         {"train": {"lyon": "train/lyon.csv", "turin": "train/turin.csv.gz"},
          "test": {"lyon": "test/lyon.csv"}}),
        (["lyon/train.csv", "turin/train.csv", "turin/test.csv", "docs/readme.csv"],
         {"train": {"lyon": "lyon/train.csv", "turin": "turin/train.csv"},
          "test": {"turin": "turin/test.csv"}}),
        (["lyon.csv", "turin.csv", "plots/1.png"], {}),
        (["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"], {}),
        (["notes.txt"], {}),
    ],
)  # fmt: skip
def test_which_files_are_a_table(tmp_path, files, found):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    places = {s: {site: tmp_path / name for site, name in by_site.items()} for s, by_site in found.items()}
    assert table_files(tmp_path) == places


def test_the_file_is_the_site_in_a_simulation_and_one_place_at_a_site(configured, tmp_path):
    sites = {"lyon": noise(60), "turin": noise(40)[["label", "a"]]}
    (tmp_path / "data").mkdir()
    for name, table in sites.items():
        table.to_csv(tmp_path / "data" / f"{name}.csv")
    config = configured(dataset=str(tmp_path / "data"), partition="natural:file")
    inputs = inputs_of(config)
    assert inputs.client_names == ("lyon", "turin")
    for rows, name in zip(inputs.partitions.train, inputs.client_names, strict=True):
        x = inputs.dataset.train.columns["x"][rows, 0]
        assert np.isin(x, sites[name]["a"].astype(np.float32)).all()
        assert len(x) == 0.8 * len(sites[name])
    node = {"data-path": str(tmp_path / "data"), "cache-dir": str(tmp_path / "cache")}
    assert len(local_task(configured(dataset="shape:1:2", columns="a"), 0, node).train) == 80


def test_excel_needs_its_extra_and_reads_the_first_sheet(load, tmp_path):
    path = tmp_path / "t.xlsx"
    try:
        import openpyxl
    except ImportError:
        path.write_bytes(b"PK")
        with pytest.raises(
            UserError, match=r"t.xlsx' needs another package: pip install 'fedbn-flower\[excel\]'"
        ):
            load(path)
        return
    book = openpyxl.Workbook()
    for row in [["a", "b", "label"], *([i, "NA" if i % 2 else "x", i % 3] for i in range(30))]:
        book.active.append(row)
    book.create_sheet("notes")
    book.save(path)
    data = load(path)
    assert data.kind.facts["columns"] == [{"name": "a", "values": []}, {"name": "b", "values": ["NA", "x"]}]
    assert "the sheets 'notes' of 't.xlsx'" in [note.text for note in data.notes]
    assert load(path, missing_values="NA").kind.facts["columns"][1]["values"] == ["x"]
    book.active["A1"] = "label"
    book.save(tmp_path / "twice.xlsx")
    with pytest.raises(UserError, match="columns 1 and 3 of .* are both called 'label'"):
        load(tmp_path / "twice.xlsx")


@pytest.mark.slow
def test_many_columns_are_named_by_looking_each_up_once(monkeypatch, load, tmp_path):
    """Each name is looked up in a mapping: comparisons of names grow as their number, not as its square."""
    counts = {}
    for columns in (100, 400):
        table = pd.DataFrame(np.zeros((10, columns)), columns=[f"c{i}" for i in range(columns)])
        table.assign(label=[0, 1] * 5).to_csv(tmp_path / f"{columns}.csv", index=False)
        counts[columns] = 0

        class Counted(str):
            __hash__ = str.__hash__

            def __eq__(self, other, columns=columns):
                counts[columns] += 1
                return str.__eq__(self, other)

        monkeypatch.setattr(
            "fedbn_flower.files.tables.features.split_words", lambda text: list(map(Counted, text.split(",")))
        )
        load(tmp_path / f"{columns}.csv", columns=",".join(table.columns))
    assert counts[400] < 8 * counts[100] + 100


def test_a_text_is_read_once(load, tmp_path, monkeypatch):
    """Packed, Western, with a title, decimal commas, a word for missing values and a unit."""
    rows = [f"{i};{i},5;{['NA', 'Jürg'][i % 2]};0{i % 9};{i % 2}" for i in range(40)]
    text = "\n".join(["Patienten;;;;", "a;b;c;unit;label", *rows])
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode("cp1252")))
    read = []
    monkeypatch.setattr(header, "opened", lambda path: read.append(path) or opened(path))
    data = load(tmp_path / "t.csv.gz", unit_column="unit")
    assert any("decimal commas" in note.text for note in data.notes)
    assert any("words taken for missing values" in note.text for note in data.notes)
    assert set(data.train.unit_names) <= {f"0{i}" for i in range(9)}
    assert read == [tmp_path / "t.csv.gz"]

"""Tables as columns: hand-made files and what is to come of each value."""

import numpy as np
import pandas as pd
import pytest

from fedbn_flower.core.notes import Note

NAN = np.nan
PATIENTS = """age,sex,bmi,smoker,hospital,Outcome
50,f,20.5,True,b,ill
61,m,,False,a,well
,f,31,True,b,well
44,,25,True,a,ill
"""
ENCODED = {
    "age": [50, 61, NAN, 44],
    "sex=f": [1, 0, 1, 0],
    "sex=m": [0, 1, 0, 0],
    "bmi": [20.5, NAN, 31, 25],
    "smoker=False": [0, 1, 0, 0],
    "smoker=True": [1, 0, 1, 1],
    "hospital=a": [0, 1, 0, 1],
    "hospital=b": [1, 0, 1, 0],
}


@pytest.fixture
def folder(tmp_path):
    """A folder with the patients as training set, and the second and fourth as test set."""
    (tmp_path / "t").mkdir()
    lines = PATIENTS.splitlines()
    (tmp_path / "t" / "train.csv").write_text(PATIENTS)
    (tmp_path / "t" / "test.csv").write_text("\n".join([lines[0], lines[2], lines[4]]))
    return tmp_path / "t"


def check(split, names, rows=slice(None)):
    expected = np.array([ENCODED[name] for name in names], np.float32).T[rows]
    np.testing.assert_array_equal(split.columns["x"], expected)
    assert split.columns["x"].dtype == np.float32


def test_numbers_and_categories_are_encoded_in_order(load, folder):
    data = load(folder)
    check(data.train, ENCODED)
    check(data.test, ENCODED, [1, 3])
    assert data.train.columns["y"].tolist() == [0, 1, 1, 0]
    assert data.test.columns["y"].tolist() == [1, 0]
    assert (data.class_names, str(data.spec)) == (("ill", "well"), "8 in 2 classes")
    assert data.kind.facts["numbers"] == [0, 3]
    assert data.notes == (
        Note(
            "inputs",
            "categories are one-hot encoded in the order of 'age,sex=f|m,bmi,smoker=False|True,hospital=a|b'",
        ),
        Note(
            "inputs",
            "missing values (age 1, sex 2, bmi 2): numbers are filled with their mean, "
            "categories are encoded as zeros",
        ),
    )


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_without_a_test_set_has_a_fifth_held_out(load, tmp_path, form):
    table = pd.DataFrame({"n": np.arange(20) / 4, "label": np.arange(20) % 2})
    getattr(table, f"to_{form}")(tmp_path / f"t.{form}", index=False)
    data = load(tmp_path / f"t.{form}")
    assert (len(data.train), len(data.test)) == (16, 4)
    assert sorted(data.test.columns["y"]) == [0, 0, 1, 1]
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.columns["x"][:, 0] * 4 % 2, split.columns["y"])
    values = np.concatenate([data.train.columns["x"], data.test.columns["x"]])
    assert sorted(values[:, 0] * 4) == list(range(20))
    assert data.notes == (Note("examples", "no test set: a fixed 20 % of the rows is held out"),)
    assert data.kind.facts["columns"] == [{"name": "n", "values": []}]


@pytest.mark.parametrize(
    ("values", "predict", "y", "names", "output"),
    [
        ([0, 1, 2, 1], "auto", [0, 1, 2, 1], (), ""),
        ([7, 0, 2, 7], "auto", [2, 0, 1, 2], ("0", "2", "7"), "the classes 0, 2, 7 are numbered from 0"),
        ([-1, 1, 1, -1], "auto", [0, 1, 1, 0], ("-1", "1"), "the classes -1, 1 are numbered from 0"),
        ([True, False, True, True], "auto", [1, 0, 1, 1], ("False", "True"), ""),
        (["b", "a", "b", "c"], "auto", [1, 0, 1, 2], ("a", "b", "c"), ""),
        ([0.0, 1.0, 1.0, 0.0], "auto", [0, 1, 1, 0], (), "2 distinct whole numbers, read as classes"),
        ([0.0, 1.0, 1.0, 0.0], "classes", [0, 1, 1, 0], (), ""),
        ([0.0, 1.0, 1.0, 0.0], "numbers", [[0], [1], [1], [0]], (), ""),
        ([3, 1, 2, 1], "numbers", [[3], [1], [2], [1]], (), ""),
        ([0.5, 1.0, -1.0, 0.5], "auto", [[0.5], [1], [-1], [0.5]], (), ""),
    ],
)
def test_what_labels_are(load, tmp_path, values, predict, y, names, output):
    (tmp_path / "t").mkdir()
    for split in ("train", "test"):
        pd.DataFrame({"target": values, "n": range(len(values))}).to_parquet(
            tmp_path / "t" / f"{split}.parquet"
        )
    data = load(tmp_path / "t", predict=predict)
    assert data.train.columns["y"].tolist() == y
    numbers = isinstance(y[0], list)
    assert data.train.columns["y"].dtype == (np.float32 if numbers else np.int64)
    assert data.spec.predicts == ("numbers" if numbers else "classes")
    assert data.spec.outputs == (1 if numbers else 1 + max(y))
    assert data.class_names == names
    assert [output in note.text for note in data.notes] == [True] * bool(output)
    assert [bool(note.decided_by) for note in data.notes] == ["read as" in note.text for note in data.notes]


def test_many_whole_numbers_are_numbers_and_that_is_said(load, tmp_path):
    pd.DataFrame({"n": range(101), "y": range(101)}).to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv")
    assert data.spec.predicts == "numbers"
    assert data.notes[1] == Note(
        "target", "'y' holds 101 distinct whole numbers, read as numbers", "predict classes"
    )
    assert load(tmp_path / "t.csv", predict="classes").spec.outputs == 101


def test_rows_without_a_label_are_left_out_and_counted(load, folder):
    (folder / "train.csv").write_text(PATIENTS.replace("well", "", 1))
    data = load(folder)
    check(data.train, ENCODED, [0, 2, 3])
    assert data.notes[0] == Note("left out", "1 row without a value in 'Outcome'")


def test_a_site_whose_rows_have_no_label_is_named(load, tmp_path):
    table = pd.DataFrame(
        {"age": range(40), "label": [0, 1] * 20, "site": ["lyon", "porto"] * 20}, dtype=object
    )
    table.loc[table.site == "porto", "label"] = table.loc[0, "label"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    without = "21 rows without a value in 'label'"
    assert Note("left out", without) in load(tmp_path / "t.csv", columns="age").notes
    by_site = load(tmp_path / "t.csv", group_column="site", predict="numbers")
    assert Note("left out", f"{without}, among them all of 'porto'") in by_site.notes


def test_ids_are_words_as_they_stand(load, tmp_path):
    """Whole numbers have no point, also where pandas makes floats of them."""
    table = pd.DataFrame({"site": [1.0, 2.0] * 5, "n": range(10), "y": [0, 1] * 5})
    table.to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv", group_column="site")
    assert set(data.train.groups) == {"1", "2"}


def test_every_client_has_a_fifth_of_its_own_rows_held_out(load, tmp_path):
    """One of five, of which there are both classes at all of them."""
    sites = [f"s{i}" for i in range(10) for _ in range(5)]
    pd.DataFrame({"site": sites, "n": range(50), "y": [0, 1] * 25}).to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv", group_column="site")
    assert sorted(data.test.groups) == sorted({*sites})


def test_a_separator_in_quotes_separates_nothing_and_an_index_is_a_column(load, tmp_path):
    (tmp_path / "t.csv").write_text('"age, years";"len, cm";label\n1;2;0\n3;4;1\n5;6;0\n7;8;1\n9;1;0\n')
    assert [c["name"] for c in load(tmp_path / "t.csv").kind.facts["columns"]] == ["age, years", "len, cm"]
    table = pd.DataFrame({"a": range(10), "label": [0, 1] * 5}, index=pd.Index(["x", "y"] * 5, name="site"))
    table.to_parquet(tmp_path / "t.parquet")
    data = load(tmp_path / "t.parquet", group_column="site")
    assert set(data.train.groups) == {"x", "y"}

"""Tables that cannot be read, or not so; sites that would encode by themselves."""

import numpy as np
import pandas as pd
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.job.checks.model_fit import check_fit
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.site.inputs import local_task

ROWS = {
    "age": [50, 61, 47, 44, 39, 58],
    "sex": ["f", "m", "f", "m", "f", "m"],
    "huge": [1e39] * 6,
    "words": ["x", "y", "x", "y", "x", "y"],
    "y": [0, 1, 0, 1, 0, 1],
}


AGE, SEX = ["age", "y"], ["sex", "y"]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            [*AGE, "label"],
            {},
            "label-column: '.*' has the columns 'y' and 'label'; expected one of age, y, label",
        ),
        (AGE, {"label_column": "ages"}, r"label-column: unknown name 'ages' \(did you mean 'age'\?\)"),
        (["words"], {"label_column": "words=x"}, "label-column: 'words' holds 'y'; expected one of x"),
        (["huge"], {"label_column": "huge", "predict": "numbers"}, "label-column: 'huge' holds numbers that"),
        (
            ["half"],
            {"label_column": "half", "predict": "classes"},
            "expected 'numbers': 'half' does not hold",
        ),
        (AGE, {"columns": "age,height"}, "columns: unknown name 'height'"),
        (AGE, {"columns": "age,age"}, "columns: .*expected each column once; 'age' is given twice"),
        (AGE, {"columns": "age,y"}, "columns: .*expected columns other than 'y', the label-column"),
        (SEX, {"columns": "sex=f"}, "columns: 'sex' holds 'm'; expected one of f"),
        (SEX, {"columns": "sex=f|m|f"}, "columns: 'sex=f|m|f' is not allowed; expected different"),
        (AGE, {"group_column": "sit"}, "partition: unknown name 'sit'"),
        (AGE, {"group_column": "y"}, "partition: 'natural:y' is not allowed; expected another column"),
    ],
)
def test_a_mistake_is_one_line(load, tmp_path, columns, options, message):
    rows = ROWS | {"half": [0.5] * 6, "label": ROWS["y"]}
    pd.DataFrame({name: rows[name] for name in columns}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError, match=message) as caught:
        load(tmp_path / "t.parquet", **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ("a,y\n1,0\n2,1\n", "", "dataset: .* has too few rows with a label for a test set"),
        ("a,y\n1,\n2,\n", "", "dataset: .* has too few rows with a label for a"),
        ("a,y\n1,0\n", "b,y\n1,0\n", "dataset: '.*test.csv' has no column 'a'"),
        ("a,label\n1,1.5\n2,2.5\n3,?\n", "", r"label-column: 'label' holds numbers and '\?'; leave missing"),
        ("a;label\n2,500;x\n1,250;y\n", "", "columns: 'a' holds numbers as text.*; write decimals with"),
    ],
)
def test_texts_that_are_no_tables(load, tmp_path, train, test, message):
    for name, content in (("train", train), ("test", test)):
        if content:
            (tmp_path / f"{name}.csv").write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "key", "value"),
    [
        ("digits", "columns", "a"),
        ("digits", "predict", "numbers"),
        ("t", "image_size", 8),
        ("t", "augment", "crop-flip"),
    ],
)
def test_a_key_of_another_kind_of_data_is_refused(configured, tmp_path, dataset, key, value):
    pd.DataFrame({"a": range(10), "y": [0, 1] * 5}).to_csv(tmp_path / "t.csv", index=False)
    name = str(tmp_path / "t.csv") if dataset == "t" else dataset
    with pytest.raises(UserError, match=f"{key.replace('_', '-')}: .* the data are not of the kind"):
        inputs_of(configured(dataset=name, partition="iid", **{key: value})).dataset


# ---- sites with tables of their own ----------------------------------------------------------------------


@pytest.fixture
def site(configured, tmp_path):
    """A site's task under a run that expects four numbers in three classes, or to a number."""
    rows = {name: ROWS[name] for name in ("age", "sex")} | {"bmi": [20.5] * 6, "y": [1, 2, 1, 2, 1, 2]}
    table = pd.DataFrame(rows | {"diagnosis": ["B", "M"] * 3})
    table.to_csv(tmp_path / "site.csv", index=False)

    def task(dataset="shape:4:3", **keys):
        node = {"data-path": str(tmp_path / "site.csv"), "cache-dir": str(tmp_path / "cache")}
        return local_task(configured(dataset=dataset, **keys), 0, node)

    return task


def test_a_site_encodes_as_the_run_says(site):
    task = site(columns="bmi,sex=m|f,age")
    assert task.train.columns["x"].shape == (5, 4)
    assert set(task.train.columns["y"]) == {1, 2}
    task = site(columns="sex=m|f,age,bmi", label_column="diagnosis=M|X|B")
    assert set(task.train.columns["y"]) == {0, 2}
    sex = task.train.columns["x"][:, :2]
    np.testing.assert_array_equal(sex.argmax(1) == 0, task.train.columns["y"] == 0)
    task = site("shape:2:1:numbers", columns="bmi,age")
    assert task.train.columns["y"].dtype == np.float32


ALL = "columns: missing; expected the same for all sites, such as "
NAMED = "is not allowed; expected the column with its"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, rf"{ALL}'age,sex=VALUE\|VALUE,bmi,diagnosis=VALUE\|VALUE'"),
        ({"columns": "age,sex"}, rf"columns: 'sex' {NAMED} values: sex=VALUE\|VALUE"),
        ({"columns": "age,sex=m|x"}, "columns: 'sex' holds 'f'; expected one of m|x"),
        (
            {"columns": "age,sex=f|m,bmi", "label_column": "diagnosis"},
            rf"label-column: 'diagnosis' {NAMED} classes, the same for all sites: diagnosis=CLASS\|CLASS",
        ),
        ({"columns": "age"}, "data-path: .* expected examples of 4 in 3 classes, not of 1 in 3 classes"),
        ({"columns": "age,sex=f|m,bmi", "predict": "numbers"}, "examples of 4 in 3 classes, not of 4 to 1"),
    ],
)
def test_a_site_that_would_encode_by_itself_is_refused(site, keys, message):
    with pytest.raises(UserError, match=message) as caught:
        site(**keys)
    assert "\n" not in str(caught.value)


def test_one_class_is_nothing_to_learn(configured, tmp_path):
    (tmp_path / "t.csv").write_text("a,label\n" + "1,ill\n2,ill\n" * 10)
    with pytest.raises(UserError, match="has one class only, 'ill'"):
        check_fit(inputs_of(configured(dataset=str(tmp_path / "t.csv"))))

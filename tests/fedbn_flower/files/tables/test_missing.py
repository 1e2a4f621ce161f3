"""Words that stand for missing values, in files of every kind, in a simulation and at a site."""

import io

import numpy as np
import pandas as pd
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.notes import Note
from fedbn_flower.files.tables.missing import USUAL, Missing
from fedbn_flower.site.inputs import local_task

GRADES = ["None", "Mild", "Severe"] * 5


def test_the_usual_words_are_those_of_pandas():
    """These, and none of some others."""
    words = [*USUAL, "", "none", "NAN", "-", "?", "missing"]
    read = pd.read_csv(io.StringIO("\n".join(f'x,"{word}"' for word in words)), header=None)[1].isna()
    assert read.tolist() == [word in ("", *USUAL) for word in words]


def test_a_named_value_is_one_whatever_the_words_say():
    missing = Missing("NA,None,-", {"grade": ("None", "Mild")})
    assert missing.of_column("grade") == ["", "NA", "-"]
    assert missing.of_column("age") == ["", "NA", "None", "-"]
    assert Missing("").of_column("age") == [""]
    assert Missing(ids={"site"}).of_column("site") == [""]
    assert Missing("NA", ids={"site"}).of_column("site") == ["", "NA"]


@pytest.mark.parametrize("kind", ["tsv", "parquet"])
def test_words_are_counted_and_named_ones_kept(load, tmp_path, kind):
    path = tmp_path / f"t.{kind}"
    table = pd.DataFrame({"a": np.arange(15) / 7, "b": ["x", "NA", "y", "x", "y"] * 3, "label": GRADES})
    if kind == "parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep="\t")
    data = load(path)
    if kind == "parquet":  # words are words
        assert data.class_names == ("Mild", "None", "Severe")
        assert data.kind.facts["columns"][1] == {"name": "b", "values": ["NA", "x", "y"]}
    else:
        assert data.class_names == ("Mild", "Severe")
        lost = "5 rows without a value in 'label', where 'None' (5) is taken for none"
        assert Note("left out", lost, "missing-values") in data.notes
        assert (
            Note("inputs", "words taken for missing values: in 'b' 'NA' (3)", "missing-values") in data.notes
        )
    named = load(path, label_column="label=None|Mild|Severe", columns="a,b=x|y|NA")
    assert len(named.train) + len(named.test) == 15
    assert named.class_names == ("None", "Mild", "Severe")
    stated = load(path, missing_values="None,NA")
    assert stated.class_names == ("Mild", "Severe")
    assert stated.kind.facts["columns"][1] == {"name": "b", "values": ["x", "y"]}
    assert not any(note.decided_by == "missing-values" for note in stated.notes)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_numbers_may_be_missing_values(load, tmp_path, kind):
    table = pd.DataFrame({"a": [1.5, -999, 2, 3] * 5, "b": [-999, 4, 5, 6] * 5, "label": [0, 1] * 10})
    getattr(table, f"to_{kind}")(tmp_path / f"t.{kind}", index=False)
    x = load(tmp_path / f"t.{kind}", missing_values="-999").train.columns["x"]
    assert np.isnan(x).any(0).all()
    assert np.nanmin(x) == 1.5


def test_a_site_called_na_is_one_and_a_site_reads_as_the_run_says(configured, load, tmp_path):
    table = pd.DataFrame({"a": np.arange(15), "b": ["?", "x", "y"] * 5, "site": "NA", "label": GRADES})
    table.to_csv(tmp_path / "t.csv")
    data = load(tmp_path / "t.csv", group_column="site", label_column="label=None|Mild|Severe")
    assert set(data.train.groups) == {"NA"}
    node = {"data-path": str(tmp_path / "t.csv"), "cache-dir": str(tmp_path / "cache")}
    keys = {"columns": "a,b=x|y", "label_column": "label=None|Mild|Severe"}
    task = local_task(configured(dataset="shape:3:3", missing_values="?", **keys), 0, node)
    assert set(task.train.columns["y"]) == {0, 1, 2}
    assert (task.train.columns["x"][:, 1:].sum(1) == 0).any()
    with pytest.raises(UserError, match="columns: 'b' holds '\\?'; expected one of x|y"):
        local_task(configured(dataset="shape:3:3", **keys), 0, node)

"""Exports of German and French spreadsheets: what has one reading only is read, and said."""

import numpy as np
import pandas as pd
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.data import Request, load_dataset

RNG = np.random.default_rng(0)
ROWS = 60
TABLE = pd.DataFrame(
    {
        "größe": RNG.normal(170, 8, ROWS).round(1),
        "crp": RNG.lognormal(0, 1, ROWS).round(3),
        "städtisch": np.array(["früh", "spät"])[RNG.integers(0, 2, ROWS)],
        "label": np.arange(ROWS) % 2,
    }
)
OF_COMMAS = "has decimal commas, as in "
OF_LETTERS = "is no UTF-8; its letters are read as Windows-1252"


def load(cache_dir, path):
    return load_dataset(Request(str(path)), cache_dir)


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"encoding": "cp1252"}, [OF_LETTERS]),
        ({"sep": ";", "decimal": ","}, [f"{OF_COMMAS}'größe', 'crp'"]),
        ({"sep": ";", "decimal": ",", "encoding": "latin-1"}, [OF_LETTERS, f"{OF_COMMAS}'größe', 'crp'"]),
        ({"decimal": ","}, [f"{OF_COMMAS}'größe', 'crp'"]),
        ({}, []),
    ],
)
def test_values_are_those_of_the_plain_file(cache_dir, tmp_path, ending, written, said):
    """To the bit, by a parse of the same digits; the third column's words too."""
    TABLE.to_csv(tmp_path / "plain.csv", index=False)
    TABLE.to_csv(path := tmp_path / f"t.{ending}", index=False, **written)
    plain, found = load(cache_dir, tmp_path / "plain.csv"), load(cache_dir, path)
    assert found.digest == plain.digest
    assert found.kind.facts["columns"] == plain.kind.facts["columns"]
    here = [note.text for note in found.notes if note.text.startswith(f"'{path.name}'")]
    assert here == [f"'{path.name}' {line}" for line in said]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (["1,234", "2,345"] * 30, "may be thousands"),
        (["1,5", "2.5"] * 30, "has both signs"),
        (["1,5", "1.234,5"] * 30, "has thousands, too"),
    ],
)
def test_commas_with_another_reading_are_refused_as_before(cache_dir, tmp_path, column, why):
    TABLE.assign(crp=column).to_csv(tmp_path / "t.csv", index=False, sep=";")
    with pytest.raises(UserError, match="columns: 'crp' holds .*; write decimals with a point"):
        load(cache_dir, tmp_path / "t.csv")


def test_points_in_another_column_forbid_decimal_commas(cache_dir, tmp_path):
    TABLE.assign(crp=["1,5", "2,25"] * 30).to_csv(tmp_path / "t.csv", index=False, sep=";")
    with pytest.raises(UserError, match="columns: 'crp' holds numbers as text"):
        load(cache_dir, tmp_path / "t.csv")


@pytest.mark.parametrize("encoding", ["cp850", "mac_roman", "cp1251", "cp1253", "iso8859-2"])
def test_letters_of_another_encoding_are_refused(cache_dir, tmp_path, encoding):
    word = {"cp1251": "Иванов", "cp1253": "Παύλος", "iso8859-2": "łódź"}.get(encoding, "männlich")
    TABLE.assign(städtisch=word).rename(columns={"größe": "a", "städtisch": "b"}).to_csv(
        tmp_path / "t.csv", index=False, encoding=encoding
    )
    with pytest.raises(UserError, match=r"is not a text in UTF-8 \(byte 0x"):
        load(cache_dir, tmp_path / "t.csv")

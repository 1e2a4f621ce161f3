"""Files as others read them: JSON without NaN, CSV without formulas, a bound on columns."""

import csv
import io
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbn_flower.core import files
from fedbn_flower.core.files import CsvLog, csv_text, json_text

WORDS = st.text('a"\\\n\0\u2028é😀', max_size=5)  # of a few kinds: tables of all take seconds to make
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda one: st.lists(one) | st.dictionaries(WORDS, one),
    max_leaves=6,
)


def output(value):
    """What is to be read again."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: output(one) for key, one in value.items()}
    return [output(one) for one in value] if isinstance(value, list) else value


@settings(max_examples=30)
@given(VALUES)
def test_json_is_read_again_by_those_who_know_no_nan(value):
    read = json.loads(json_text(value), parse_constant=pytest.fail)
    assert read == output(value)


TEXTS = st.text("=+-@'a1.e\t\n, \"", max_size=5)


@given(st.lists(TEXTS, min_size=1, max_size=3, unique=True), TEXTS)
def test_no_cell_of_a_table_is_a_formula(names, text):
    header, row = csv.reader(io.StringIO(csv_text(names, [dict.fromkeys(names, text)])))
    for cell, meant in zip([*header, *row], [*names, *[text] * len(names)], strict=True):
        if cell != meant:
            assert meant[0] in "=+-@\t"
            assert cell == f"'{meant}"
        elif cell[:1] and cell[0] in "=+-@\t":
            float(cell)


@pytest.mark.parametrize("number", ["-1.5", "+2", "-inf", -3, -0.5, "1e-3", ""])
def test_numbers_are_what_they_are(number):
    assert csv_text(["a"], [{"a": number}]).split("\n")[1] in (str(number), '""')


def test_a_column_that_would_be_a_formula_is_one_column(tmp_path):
    """Of rows that come at different times, and of a log that goes on."""
    path = tmp_path / "log.csv"
    log = CsvLog(path, ["round"])
    log.append([{"round": 1, "=a": 1}])
    log.append([{"round": 2, "=a": "=b"}])
    log.append([{"round": 3, "c": 3}])
    CsvLog(path, ["round"], last_round=3).append([{"round": 4, "=a": 4}])
    assert path.read_text() == "round,'=a,c\n1,1,\n2,'=b,\n3,,3\n4,4,\n"


def test_there_is_an_end_to_new_columns(tmp_path, monkeypatch, caplog):
    """The file is not written anew for ever; what has a column goes on, and it is told once."""
    monkeypatch.setattr(files, "MOST_COLUMNS", 3)
    log = CsvLog(tmp_path / "log.csv", ["round", "a"])
    for number in (1, 2, 3):
        log.append([{"round": number, "a": 10 * number, f"m{number}": 1, f"n{number}": 2}])
    assert (tmp_path / "log.csv").read_text() == "round,a,m1\n1,10,1\n2,20,\n3,30,\n"
    assert [r.getMessage() for r in caplog.records] == [
        "log.csv has 3 columns, the maximum: further metrics are left out"
    ]

"""Training rows are those below a number or a date, and test rows all others."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower import UserError
from fedbn_flower.data.splits.split_by import SplitBy
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.job.tasks import rows_of
from fedbn_flower.job.what_is_learnt import what_is_learnt
from fedbn_flower.server.federation import Federation

DATES = ["2019-03-01", "2019-12-31", "2020-01-01", "2020-01-01T12:00:00", "2021-05-05"]


@pytest.fixture
def visits(tmp_path):
    rows = [f"{20 + i},{2015 + i % 8},{DATES[i % 5]},{i % 2}" for i in range(40)]
    path = tmp_path / "visits.csv"
    path.write_text("age,year,seen,outcome\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def split(configured, visits):
    keys = {"dataset": visits, "partition": "iid", "model": "mlp-bn", "columns": "age", "rounds": 1}
    return lambda text, **further: configured(**{**keys, **further}, split_by=text)


@given(
    values=st.lists(st.integers(-50, 50), min_size=2, max_size=30), bound=st.floats(-50, 50, allow_nan=False)
)
def test_every_row_is_on_the_side_that_the_condition_says(values, bound):
    column = pd.Series(values)
    expected = [value < bound for value in values]
    by = SplitBy.parse(f"a<b<{bound}")
    assert (by.column, by.bound) == ("a<b", bound)
    if all(expected) or not any(expected):
        with pytest.raises(UserError, match=r"^split-by: .* leaves rows to (train|test) on: it is"):
            by.divide(column)
        return
    train, test = by.divide(column)
    assert sorted([*train, *test]) == [*range(len(values))]
    assert [i in set(train) for i in range(len(values))] == expected


@pytest.mark.parametrize(
    ("bound", "dates"), [("2020-01-01", 2), ("2020-01-01T06:00", 3), ("2020-01-02", 4), ("2019-12-31", 1)]
)
def test_dates_are_compared_with_their_times(bound, dates):
    train, _ = SplitBy.parse(f"seen<{bound}").divide(pd.Series(DATES, dtype=object))
    assert train.tolist() == [*range(dates)]
    train, _ = SplitBy.parse(f"seen < {bound}").divide(pd.Series(pd.to_datetime(DATES, format="ISO8601")))
    assert train.tolist() == [*range(dates)]


@pytest.mark.parametrize(
    ("text", "column", "count"), [("year<2019", "year", 20), ("seen<2020-01-01", "seen", 16)]
)
def test_the_column_is_no_input(split, text, column, count):
    inputs = inputs_of(split(text, columns="auto" if column == "seen" else "age"))
    assert (len(inputs.dataset.train), len(inputs.dataset.test)) == (count, 40 - count)
    names = [one["name"] for one in inputs.dataset.kind.facts["columns"]]
    assert names == (["age", "year"] if column == "seen" else ["age"])
    notes = [str(note) for note in what_is_learnt(inputs)]
    assert f"examples: trained on are the rows with {text}, tested on all others" in notes
    assert f"left out: {column!r}, by which rows are for training or testing" in notes


def test_at_a_site_it_is_the_sites_rows(split, visits, tmp_path):
    config = split("year<2019", dataset="shape:1:2", label_column="outcome=0|1", val_fraction=0.2)
    inputs = inputs_of(config, visits, str(tmp_path / "cache"))
    rows = rows_of(inputs, 0)
    assert (len(rows["train"]), len(rows["val"]), len(rows["test"])) == (16, 4, 20)


@pytest.mark.parametrize(
    ("text", "keys", "line"),
    [
        ("year", {}, r"^split-by: 'year' is not allowed; expected COLUMN<VALUE with a number or a date"),
        ("year<", {}, r"^split-by: 'year<' is not allowed; expected COLUMN<VALUE"),
        ("<2019", {}, r"^split-by: '<2019' is not allowed; expected COLUMN<VALUE"),
        ("year<nan", {}, r"^split-by: 'year<nan' is not allowed; expected COLUMN<VALUE"),
        ("year<soon", {}, r"^split-by: 'year<soon' is not allowed; expected COLUMN<VALUE"),
        ("seen<2020-01-01T00:00Z", {}, r"^split-by: .* is not allowed; expected COLUMN<VALUE"),
        ("yaer<2019", {}, r"^split-by: unknown name 'yaer'"),
        ("outcome<1", {}, r"^split-by: 'outcome' is not allowed; expected another column: this is the label"),
        ("year<2000", {}, r"^split-by: .* leaves rows to train on: it is 2015 to 2022$"),
        ("year<2050", {}, r"^split-by: .* leaves rows to test on: it is 2015 to 2022$"),
        ("seen<2000-01-01", {}, r"rows to train on: it is 2019-03-01 to 2021-05-05$"),
        ("seen<2019", {}, r"^split-by: 'seen' holds '2019-03-01' \(40 rows\); expected numbers, as"),
        ("year<2019-01-01", {}, r"^split-by: 'year' holds '2015' \(40 rows\); expected dates such"),
        ("age<30", {}, r"^columns: 'age' is not allowed; expected columns other than 'age', the column"),
        ("year<2019", {"dataset": "digits", "columns": "auto"}, r"^split-by: .* none: the data are"),
        ("year<2019", {"folds": 3, "fold": 1}, r"^folds: 3 is not allowed; expected 0 with split-by"),
    ],
)
def test_conditions_that_cannot_be(split, text, keys, line):
    with pytest.raises(UserError, match=line) as error:
        Federation(split(text, **keys))
    assert "\n" not in str(error.value)


def test_a_test_set_that_is_given_and_missing_values(split, tmp_path):
    (tmp_path / "d").mkdir()
    for name in ("train", "test"):
        (tmp_path / "d" / f"{name}.csv").write_text("age,year,outcome\n" + "1,2010,0\n2,2020,1\n" * 5)
    with pytest.raises(UserError, match=r"^split-by: .* expected none: the data have a test set$"):
        Federation(split("year<2019", dataset=str(tmp_path / "d")))
    (tmp_path / "t.csv").write_text("age,year,outcome\n" + "1,2010,0\n2,,1\n" * 5)
    with pytest.raises(UserError, match=r"^split-by: 'year' is missing in 5 rows; expected a value in each$"):
        Federation(split("year<2019", dataset=str(tmp_path / "t.csv")))

"""Columns that are hardly meant as inputs, and tables that have none."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from fedbn_flower.config.making import run_config
from fedbn_flower.data.partition.shares import Shares
from fedbn_flower.inspection.inputs import CHANCE, warn_about_columns
from fedbn_flower.job.checks.notices import warnings_of_data
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.server.federation import Federation

from ..data.test_own_data import Sites
from .frames import dataset_of

N = 200
RNG = np.random.default_rng(0)
DAYS = pd.to_datetime("2015-01-01") + pd.to_timedelta(RNG.permutation(3000)[:N], "D")
BIRTHS = pd.to_datetime("1930-01-01") + pd.to_timedelta(RNG.permutation(30000)[:N], "D")
LAB = RNG.normal(5, 1, N).round(1)
AGES = np.arange(N) % 75 + 20.0
"""Nearer to -9 than they range, and further from it than five times what they are apart."""


def as_numbers(days):
    return [int(f"{day:%Y%m%d}") for day in days]


def doubts(missing_values="auto", shares=None, **columns):
    """The doubts about columns beside noise and a label; all rows are training rows."""
    count = len(next(iter(columns.values())))
    noise = {"noise": np.random.default_rng(1).normal(size=count), "label": np.resize([0, 1], count)}
    return list(warn_about_columns(dataset_of({**noise, **columns}, "label"), shares, missing_values))


@pytest.mark.parametrize(
    "values",
    [
        np.arange(N),
        RNG.permutation(N) * 10 + 20_000_007,
        [f"patient {i}" for i in RNG.permutation(60)],
        np.minimum(np.arange(N), N - 3),  # three rows stand for one
        RNG.permutation(10_000)[:N] + 5,  # of 200 from 10,000 two would be equal in 86 of 100 tables
    ],
)
def test_whole_numbers_and_words_of_each_row_are_ids(values):
    found = doubts(key=values)
    if len(np.unique(values)) == N and np.ptp(values) > 5 * N and np.min(values) < 1000:
        assert not found
        return
    assert found == [
        "columns: ids? 'key' has a value of its own in (nearly) each training row, as a row number or an id "
        "has; name the columns to use without it"
    ]


@pytest.mark.parametrize("name", ["id", "patient_id", "PatientID", "MRN", "study no", "uuid"])
def test_sparse_ids_are_known_by_their_name(name):
    """Of 200 numbers from 90 millions chance has no two equal in 9998 of 10000 tables."""
    sparse = RNG.integers(10**7, 10**8, N)
    assert not doubts(covid=sparse, paid=sparse, width=sparse)
    assert doubts(**{name: sparse})[0].startswith(f"columns: ids? {name!r} has a value of its own")


@pytest.mark.parametrize("name", ["patient", "PatientID", "subject_no", "MRN", "case id"])
@pytest.mark.parametrize("values", [np.arange(N) // 2, [f"P{i // 8}" for i in range(N)]])
def test_people_of_whom_there_are_several_rows_are_groups(name, values):
    """Not by another name, nor where there are few, nor how many there are."""
    assert not doubts(patients_age=values, ward=values, patient=np.arange(N) % 19, cases=RNG.poisson(40, N))
    assert doubts(**{name: values}) == [
        f"columns: groups? {name!r} has values that several rows share, as those of a patient do: some may "
        f"be trained on and others tested on; group-column {name!r} keeps them together, and is no input"
    ]


@pytest.mark.parametrize("rows", [8, 16, 20])
def test_few_rows_are_ids_where_chance_would_not_do_it(rows):
    """Of so many draws from as many numbers (rows - 1) / 2 pairs are equal; none is exp(-that)."""
    assert bool(doubts(row=np.arange(rows))) == (math.exp(-(rows - 1) / 2) < CHANCE / 2) == (rows >= 17)


@pytest.mark.parametrize(
    ("name", "values", "example"),
    [
        ("admitted", as_numbers(DAYS), f"such as {min(as_numbers(DAYS))}"),
        ("born", as_numbers(BIRTHS), ""),
        ("seen", 1_500_000_000 + RNG.integers(0, 10**8, N), "Unix seconds from 2017-07-1"),
        ("seen", 1_500_000_000_000 + RNG.integers(0, 10**11, N), "Unix milliseconds from 2017-07-1"),
        ("timestamp", RNG.integers(10**9, 2 * 10**9, N), "Unix seconds from 2001-"),
        ("Year", RNG.integers(1990, 2020, N), "such as 1990"),
    ],
)
def test_dates_that_are_numbers(name, values, example):
    (found,) = doubts(**{name: values})
    assert found.startswith(f"columns: dates? {name!r} ({example}")
    assert found.endswith(
        " is read as numbers; write days or years since a date that matters, or name the columns to use "
        "without it"
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("built", RNG.integers(1900, 2020, N)),
        ("price", RNG.integers(190_000, 210_000, N) * 100),
        ("provider", RNG.integers(10**9, 2 * 10**9, N)),
        ("code", RNG.integers(19_000_000, 21_000_000, N)),
        ("seen", 1_500_000_000 + RNG.normal(size=N)),
    ],
)
def test_numbers_of_that_size_are_no_dates(name, values):
    assert not doubts(**{name: values})


def test_several_columns_have_one_line():
    names, seen = [f"p{i}" for i in range(60)], 1_704_067_200 + np.arange(60) ** 3 * 1000
    ids, dates = doubts(case=RNG.permutation(60), name=names, day=as_numbers(DAYS[:60]), at=seen)
    assert ids.startswith("columns: ids? 'case', 'name' each have a value of their own in (nearly) each")
    assert ids.endswith("name the columns to use without them")
    assert "'at' (Unix seconds from 2024-01-01 on) are read as numbers; write days or years" in dates


def test_what_each_client_has_alone():
    """A category, a number, and a gap; not what two clients share, nor what one of them has twice."""
    (found,) = doubts(
        shares=Shares.of(np.split(np.arange(60), 3)),
        hospital=np.repeat(["north", "south", "east"], 20),
        beds=np.repeat([100.0, np.nan, 300.0], 20),
        urban=np.repeat([0, 1, 1], 20),
        almost=np.append(np.repeat([4.5, 5.5, 6.5], 20)[:-1], 7.5),
    )
    assert found == (
        "columns: owner? 'hospital', 'beds' each have one value at each of 3 clients and another at each "
        "other, as a client's name has; name the columns to use without them"
    )


@pytest.mark.parametrize(
    ("value", "others"),
    [
        (-999, LAB),
        (-9999, LAB),
        (-9, LAB - 5),
        (-9, AGES),
        (9999, LAB * 100),
        (999.9, LAB),
        (99, LAB),
        (-99, LAB * 100),
    ],
)
def test_numbers_of_nines_that_are_far_away(value, others):
    column = np.where(np.arange(N) % 20 == 0, value, others)
    times = N // 20
    assert doubts(lab=column) == [
        f"missing-values: missing? 'lab' ({value}, {times} times), far from all other values; if so, name "
        f"them with all words that stand for none: missing-values={value}"
    ]
    assert not doubts(missing_values="NA", lab=column)


def test_several_numbers_of_nines_in_a_column():
    column = np.select([np.arange(N) % 20 == k for k in range(3)], [-999, 999, -9999], LAB)
    (found,) = doubts(lab=column)
    assert "'lab' (-9999, 10 times), 'lab' (-999, 10 times), 'lab' (999, 10 times), far" in found
    assert found.endswith("missing-values=-9999,-999,999")


@pytest.mark.parametrize(
    "column",
    [
        RNG.integers(0, 100, N),
        np.where(np.arange(N) % 20, RNG.integers(1, 95, N), 99),
        np.where(np.arange(N) % 20, LAB, -1),
        np.where(np.arange(N), LAB, -999),  # once
        np.where(np.arange(N) % 20, RNG.normal(0, 50, N), -99),
    ],
)
def test_nines_among_others_are_numbers(column):
    assert not doubts(lab=column)


def test_a_number_to_predict_may_be_missing_too():
    label = np.where(np.arange(N) % 20 == 0, -999, LAB)
    (found,) = warn_about_columns(dataset_of({"n": LAB, "label": label}, "label"))
    assert found.startswith("missing-values: missing? 'label' (-999, 10 times)")


def test_many_columns_are_a_few_names():
    (found,) = doubts(**{f"c{i}": RNG.permutation(N) for i in range(12)})
    assert "ids? 'c0', 'c1', 'c2', 'c3', 'c4' and 7 more each have" in found


def test_what_some_rows_show_is_checked_on_all(monkeypatch):
    monkeypatch.setattr("fedbn_flower.inspection.inputs.CELLS", 100)
    monkeypatch.setattr("fedbn_flower.inspection.inputs.FEWEST", 50)
    visits = np.repeat(np.arange(N), 2)
    assert not doubts(visit=visits)
    assert doubts(row=np.arange(2 * N))
    assert "groups? 'patient'" in str(doubts(patient=visits))  # of whom 50 of 400 rows have no two


@pytest.mark.parametrize("name", ["iris", "breast_cancer", "diabetes"])
def test_clean_tables_with_their_own_labels_have_none(cache_dir, tmp_path, name):
    data = getattr(datasets, f"load_{name}")()
    table = pd.DataFrame(data.data).add_prefix("c").assign(target=data.target)
    table.to_csv(tmp_path / "t.csv", index=False)
    config = run_config({"dataset": str(tmp_path / "t.csv"), "cache-dir": str(cache_dir), "num-clients": 3})
    assert not [line for line in warnings_of_data(inputs_of(config)) if "?" in line]


@pytest.mark.parametrize("load", [datasets.load_wine, datasets.load_digits])
def test_their_columns_alone_have_none_either(load):
    data = load()
    assert not doubts(**{f"c{i}": column for i, column in enumerate(data.data.T)})


def test_homes_and_people_have_none():
    """Columns as in the tables of California's homes, of the census and of the Titanic."""
    rng, n = np.random.default_rng(0), 2000
    columns = {
        "Population": rng.lognormal(7, 0.8, n).round(),
        "HouseAge": rng.integers(1, 53, n),
        "Latitude": rng.uniform(32, 42, n).round(2),
        "fnlwgt": rng.lognormal(12, 0.5, n).astype(int),
        "hours-per-week": np.clip(rng.normal(40, 12, n).round(), 1, 99),
        "capital-gain": np.where(rng.random(n) < 0.9, 0, rng.integers(100, 40000, n)),
        "Fare": rng.lognormal(3, 1, n).round(4),
        "Pclass": rng.integers(1, 4, n),
    }
    for count in (30, 300, n):
        assert not doubts(**{name: values[:count] for name, values in columns.items()})


def test_a_run_and_a_site_warn_of_them(cache_dir, tmp_path):
    """A site does so of its own rows: one client has no others to differ from."""
    pd.DataFrame({"row": range(40), "at": ["a", "b"] * 20, "label": [0, 1, 1, 0] * 10}).to_csv(
        tmp_path / "t.csv", index=False
    )
    keys = {"num-clients": 2, "cache-dir": str(cache_dir), "columns": "row,at=a|b"}
    of_run = run_config({"dataset": str(tmp_path / "t.csv"), "partition": "natural:at", **keys})
    of_site = run_config({"dataset": "shape:3:2", **keys})
    said = [
        list(warnings_of_data(inputs_of(c, p))) for c, p in ((of_run, ""), (of_site, str(tmp_path / "t.csv")))
    ]
    assert [[line.split(" ", 3)[1:3] for line in found] for found in said] == [
        [["ids?", "'row'"], ["owner?", "'at'"]],
        [["ids?", "'row'"]],
    ]


def test_a_site_logs_them_once(configured, cache_dir, tmp_path, caplog):
    """In the first round of two; the other site has other rows, and nothing to be said of them."""
    rng = np.random.default_rng(0)
    nodes = []
    for i, row in enumerate((np.arange(40), rng.normal(size=40))):
        frame = pd.DataFrame({"row": row, "label": np.tile([0, 1, 1, 0], 10)})
        frame.to_csv(tmp_path / f"{i}.csv", index=False)
        nodes.append(
            {"data-path": str(tmp_path / f"{i}.csv"), "partition-id": i, "cache-dir": str(cache_dir)}
        )
    config = configured(dataset="shape:1:2", columns="row", rounds=2, client="shared", num_clients=2)
    Federation(config).run(Sites(config, nodes), [])
    assert sum("columns: ids? 'row' has" in record.message for record in caplog.records) == 1

"""Features that alone determine the target, and data in which none does."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from fedbn_flower.data import Request, load_dataset
from fedbn_flower.data.readers.arrays import keep_arrays
from fedbn_flower.inspection.leaks import CHANCE, warn_about_leaks

from .frames import dataset_of


def leaks(table):
    return list(warn_about_leaks(dataset_of(table, "y")))


def noise(count, columns=1):
    rng = np.random.default_rng(0)
    return {f"n{i}": rng.normal(size=count) for i in range(columns)}


@pytest.mark.parametrize("rows", [10, 12, 14, 16])
def test_one_threshold_is_a_leak_where_chance_would_not_do_it(rows):
    """Of C(n, n/2) orders of as many 0 as 1, two have one change: below 1 in 1000 from n = 14 on."""
    found = leaks({"row": np.arange(rows), "y": np.repeat([0, 1], rows // 2)})
    assert bool(found) == (2 / math.comb(rows, rows // 2) < CHANCE) == (rows >= 14)
    if found:
        assert found == [
            f"columns: leaks? 'row' alone determines the target of all {rows} training rows, by thresholds, "
            "as a copy, an id, a row number or a date does; name the columns to use without it"
        ]


def test_a_copy_an_id_and_what_says_when_are_leaks():
    """Ids of three visits each; a label as words; days that are late for the ill; a value that they lack."""
    rng = np.random.default_rng(0)
    y = np.repeat(rng.integers(0, 2, 60), 3)
    lab = np.where(y == 1, np.nan, 1.0)
    table = {
        **noise(180, 3),
        "patient": np.repeat(rng.permutation(60), 3),
        "words": np.where(y, "ill", "well"),
    }
    found = leaks({**table, "day": y * 1000 + rng.permutation(180), "lab": lab, "y": y})
    assert [line.split(" the target")[0] for line in found] == [
        "columns: leaks? 'patient', 'words' each alone determine",
        "columns: leaks? 'day', 'lab' each alone determine",
    ]
    assert all(how in line for how, line in zip(("by its value,", "by thresholds,"), found, strict=True))


def test_a_sum_or_difference_of_columns_is_a_leak():
    """Days of a stay by its first and last day; any event of two that exclude each other."""
    rng = np.random.default_rng(0)
    admitted, stay, kind = rng.integers(18000, 19000, 90), rng.integers(1, 40, 90), rng.integers(0, 3, 90)
    days = {"admitted": admitted, "discharged": admitted + stay}
    (line,) = leaks({**noise(90), **days, "y": stay + 0.5})
    assert line.startswith(
        "columns: leaks? 'admitted', 'discharged' together determine the target of all 90 "
    )
    (line,) = leaks({**noise(90), "stroke": kind == 1, "bleeding": kind == 2, "y": np.minimum(kind, 1)})
    assert line.startswith("columns: leaks? 'stroke', 'bleeding' together determine")
    assert not leaks({**days, "y": stay + 0.5 * rng.normal(size=90)})
    assert not leaks({**noise(90, 36), "y": rng.normal(size=90)})


def test_a_sum_is_told_of_all_rows_though_a_column_has_missing_values():
    """Only where that is known the target is the sum."""
    rng = np.random.default_rng(0)
    a, b, gaps = rng.normal(size=90), rng.normal(size=90), np.where(np.arange(90) % 3, 1, np.nan)
    assert not leaks({"a": a, "b": b, "lab": gaps, "y": a + b + np.isnan(gaps) * rng.normal(size=90)})
    (line,) = leaks({"a": a, "b": b, "lab": gaps, "y": a + b})
    assert line.startswith("columns: leaks? 'a', 'b' together determine the target of all 90 training rows")


def test_what_one_column_determines_is_no_sum():
    """As hardly any event is one by chance."""
    event = np.arange(40) == 7
    assert not leaks({**noise(40), "event": event, "y": event})


@pytest.mark.parametrize("varied", [0, 1])
def test_labels_and_flags_of_patients_with_several_rows_are_no_sum(varied):
    rng = np.random.default_rng(0)
    flags, y = np.repeat(rng.integers(0, 2, (30, 40)), 8, 0), np.repeat(rng.integers(0, 2, 30), 8)
    assert not leaks({**noise(240, varied), **{f"f{i}": flag for i, flag in enumerate(flags.T)}, "y": y})


@pytest.mark.parametrize("kinds", [2, 3, 5])
def test_any_of_several_events_is_their_sum(kinds):
    """As few different rows as there are events and none; of two that do not exclude each other, four."""
    kind = np.random.default_rng(0).integers(0, kinds + 1, 120)
    events = {f"e{i}": (kind == i + 1).astype(int) for i in range(kinds)}
    (line,) = leaks({**events, "y": np.minimum(kind, 1)})
    assert "together determine" in line
    a, b = kind % 2, np.random.default_rng(1).integers(0, 2, 120)
    assert leaks({"a": a, "b": b, "y": a + b})
    assert leaks({"a": a, "b": b, "y": 2 * a + b})


def test_a_number_that_stands_for_none_makes_no_sum():
    rng = np.random.default_rng(0)
    numbers = rng.normal(3000, 1000, (200, 3))
    numbers[:3] = 99999999
    assert not leaks(dict(zip(["income", "rent", "y"], numbers.T, strict=True)))


def test_ids_that_never_occur_again_say_nothing():
    rng = np.random.default_rng(0)
    assert not leaks({"id": rng.permutation(500), **noise(500), "y": rng.integers(0, 2, 500)})


def test_rows_that_are_copies_are_no_evidence():
    table = pd.DataFrame({**noise(40, 2), "y": np.arange(40) % 2})
    assert not leaks(pd.concat([table] * 3))
    assert leaks(pd.concat([table.assign(copy=table.y)] * 3))


@pytest.mark.parametrize("of_y", [lambda y: y, lambda y: 32 + 1.8 * y, lambda y: -np.exp(y)])
def test_copies_of_a_number_in_another_unit(of_y):
    y = noise(50)["n0"]
    found = leaks({**noise(50, 2) | {"n0": y + 1e-3 * noise(50, 2)["n1"]}, "unit": of_y(y), "y": y})
    assert [line.split(" the target")[0] for line in found] == ["columns: leaks? 'unit' alone determines"]
    assert "by its order" in found[0]


@pytest.mark.parametrize(
    ("load", "every"),
    [
        (datasets.load_iris, 1),  # petals separate one class, not all
        *(
            (load, every)
            for load in (datasets.load_wine, datasets.load_breast_cancer)
            for every in (1, 3, 10)
        ),
    ],
)
def test_clean_data_have_none(load, every):
    data = load()
    columns = {f"c{i}": column[::every] for i, column in enumerate(data.data.T)}
    assert not leaks({**columns, "y": data.target[::every]})


def test_what_a_part_of_the_rows_shows_is_checked_on_all(monkeypatch):
    monkeypatch.setattr("fedbn_flower.inspection.leaks.CELLS", 200)
    monkeypatch.setattr("fedbn_flower.inspection.leaks.FEWEST", 50)
    y = np.arange(1000) >= 500
    almost = np.arange(1000)
    almost[[1, 998]] = almost[[998, 1]]
    found = leaks({"row": np.arange(1000), "almost": almost, "y": y})
    assert [line.split(" the target")[0] for line in found] == ["columns: leaks? 'row' alone determines"]


def test_arrays_of_rows_and_of_several_labels(cache_dir):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 3)), rng.integers(0, 2, (100, 2))
    x[:, 1] = y[:, 1]
    name = keep_arrays(cache_dir, dict(zip(("x", "y", "x_test", "y_test"), (x, y, x, y), strict=True)))
    (found,) = warn_about_leaks(load_dataset(Request(name), cache_dir))
    assert found.startswith("data: leaks? 'x1' alone determines the target '1' of all 100 training rows")

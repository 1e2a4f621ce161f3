"""Numbers far from 0: what float32 rounds off them is kept, and what is lost is said."""

from fractions import Fraction
from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
import torch

from fedbn_flower.data.float32 import columns_of, feature_of, may_lose
from fedbn_flower.data.numeric import FeatureMoments, Standardise
from fedbn_flower.data.readers.arrays import keep_arrays

SECONDS = 1_700_000_000 + np.arange(80)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("values", "distinct"),
    [
        (SECONDS, (80, 2, 80)),  # float32 has the multiples of 128 there
        (SECONDS.astype(np.float64), (80, 2, 80)),
        (np.append(SECONDS, np.nan), (80, 2, 80)),
        (SECONDS.astype(np.longdouble) + np.longdouble(1) / 3, (80, 2, 80)),
        (SECONDS * 10**9, (80, 2, 80)),  # nanoseconds
        ((SECONDS * 10**9).astype(np.uint64), (80, 2, 80)),
        (SECONDS - 1_700_000_000 + 2**24, (80, 41, 80)),  # even numbers, from 2**24 to 2**24 + 80
        (np.append(SECONDS[:8], 0), (9, 2, 2)),  # a word for missing: 8 s are 1e-8 of the deviation
    ],
)
def test_what_float32_merges_is_counted_and_kept(values, distinct):
    found = feature_of(values)
    assert found.distinct == distinct
    np.testing.assert_array_equal(found.values, values.astype(np.float32))
    whole = found.values[:80].astype(np.longdouble)[: len(values)] + found.rest[: len(found.values[:80])]
    np.testing.assert_allclose(whole, values[:80], rtol=2.0**-48)


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(size=1000),
        RNG.normal(size=1000).astype(np.float32) + np.float32(1e9),
        RNG.normal(3e8, 1, 1000).astype(np.float32).astype(np.float64),
        np.round(RNG.normal(0.9967, 0.0019, 1000), 5),  # far from 0, but none merge
        np.full(10, 0.1),
        np.arange(1000),
        np.array([True, False]),
        np.full(3, np.nan),
    ],
)
def test_other_numbers_are_as_they_were(values):
    found = feature_of(values)
    assert (found.rest, found.distinct) == (None, None)
    np.testing.assert_array_equal(found.values, values.astype(np.float32))


def test_a_quick_look_misses_nothing():
    """Of columns of many sizes, spreads and numbers of decimals."""
    rng = np.random.default_rng(1)
    columns = [
        rng.normal(10 ** rng.uniform(-3, 9), 10 ** rng.uniform(-3, 6), 80).round(rng.integers(0, 6))
        for _ in range(300)
    ]
    columns += [np.append(SECONDS[1:], np.nan), np.append(SECONDS[1:], 0), np.append(np.arange(79), 1e30)]
    columns += [np.full(80, np.nan), np.full(80, 0.1), np.full(80, 1.7e9 + 10), RNG.normal(size=80)]
    found = [feature_of(column) for column in columns]
    finds = np.array([one.rest is not None or one.distinct is not None for one in found])
    may = may_lose(np.array(columns))
    assert not (finds & ~may).any()
    assert 50 < finds.sum() <= may.sum() < 250


def test_a_constant_far_from_0_is_kept_for_other_sites():
    """Alone it is standardised to 0; beside another site's values it says where this site's lie."""
    found = feature_of(np.full(5, 1_700_000_010))
    assert found.values[0] == 1_700_000_000
    assert found.rest.tolist() == [10] * 5


def test_values_that_standardising_merges_are_counted_though_float32_has_them():
    """Of 0..79 and 1e30 the deviation is 1e29: 0..79 become the same number."""
    assert feature_of(np.append(np.arange(80.0), 1e30)).distinct == (81, 81, 2)


def test_standardising_is_exact_to_float32():
    """By rational numbers."""
    hours = np.array([1_700_000_000 + 3600 * i + i**2 for i in range(50)])
    x = np.stack([hours, np.arange(50)], 1)
    train, _, facts = columns_of(x, x[:2])
    assert facts["fine"] == [0]
    fitted = Standardise.fit(train["x"], [0, 1], {0: train["rest"][:, 0]})
    batch = {name: torch.from_numpy(column) for name, column in train.items()} | {"y": torch.zeros(50)}
    values, _ = fitted(batch)
    exact = [Fraction(int(value)) for value in hours]
    mean = sum(exact) / 50
    std = float(sum((value - mean) ** 2 for value in exact) / 50) ** 0.5
    expected = np.array([float(value - mean) / std for value in exact])
    np.testing.assert_allclose(values[:, 0].numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(batch["x"], train["x"])  # the batch itself stays


def test_moments_far_from_0_do_not_depend_on_the_parts():
    values = 1.7e9 + RNG.normal(0, 30, 600)
    x, rest = values.astype(np.float32), (values - values.astype(np.float32)).astype(np.float32)
    parts = [
        FeatureMoments.of(x[rows, None], [0], {0: rest[rows]})
        for rows in np.split(np.arange(600), [1, 50, 300])
    ]
    scale = FeatureMoments.of(x[:, None], [0], {0: rest}).scale()
    assert reduce(add, parts).scale() == reduce(add, parts[::-1]).scale() == scale
    assert scale.mean[0] == pytest.approx(float(np.mean(values - 1.7e9)) + 1.7e9, abs=1e-5)
    assert scale.std[0] == pytest.approx(values.std(), rel=1e-7)


def test_only_the_features_that_need_it_have_a_rest(load, cache_dir):
    x = RNG.normal(size=(40, 3, 4))
    x[:, 1] += 1e9
    y = np.arange(40) % 2
    name = keep_arrays(cache_dir, {"x": x[:30], "y": y[:30], "x_test": x[30:], "y_test": y[30:]})
    found = load(name)
    for split, part in ((found.train, x[:30]), (found.test, x[30:])):
        np.testing.assert_array_equal(split.columns["x"], part.astype(np.float32))
        assert split.columns["rest"].shape == (len(part), 1, 4)
        whole = split.columns["x"][:, 1].astype(np.float64) + split.columns["rest"][:, 0]
        np.testing.assert_allclose(whole, part[:, 1], rtol=2.0**-48)
    other = keep_arrays(cache_dir, {"x": x[:30] + 1e-3, "y": y[:30], "x_test": x[30:], "y_test": y[30:]})
    assert other != name


# ---- learning --------------------------------------------------------------------------------------------


# ---- what is said ----------------------------------------------------------------------------------------


def test_values_that_merge_are_said_of_a_table(load, tmp_path):
    """Targets are not standardised: predictions are in the targets' unit."""
    times = pd.DataFrame({"t": np.append(SECONDS[:8], 0), "target": SECONDS[:9] + 0.5})
    times.to_csv(tmp_path / "t.csv", index=False)
    said = set(map(str, load(tmp_path / "t.csv").notes))
    assert {
        "inputs: distinct values that float32 keeps apart once standardised: 't' 2 of 9",
        "target: distinct values that float32 keeps apart: 'target' 1 of 9; subtract a constant first",
    } <= said


def test_many_features_that_merge_take_one_line(load, cache_dir):
    x, y = np.stack([SECONDS] * 7, 1), np.arange(80) % 2
    name = keep_arrays(cache_dir, {"x": x, "y": y, "x_test": x, "y_test": y})
    (note,) = load(name).kind.notes(False)
    assert "x[:, 0] 2 of 80, " in note.text
    assert "x[:, 4] 2 of 80 and 2 more" in note.text

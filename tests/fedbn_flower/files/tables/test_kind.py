"""Rows as tensors: standardised by a client's own."""

import numpy as np
import pytest
import torch

from clients import Examples
from fedbn_flower.data.numeric import Table

NAN = np.nan
X = np.array([[1, 5, 1, NAN], [3, 5, 0, NAN], [NAN, 5, 1, NAN], [100, 7, 0, 4]], np.float32)
"""Two numbers, a category and a number that the first rows do not have."""


@pytest.fixture
def table():
    facts = {"predicts": "numbers", "outputs": 1, "numbers": [0, 1, 3], "columns": ""}
    return Table(facts, {"x": X, "y": np.ones((4, 1), np.float32)})


def prepared(table, rows, of):
    return Examples(table.train, np.array(of), table.prepare(np.array(rows), False)).prepared(
        np.arange(len(of))
    )


def test_a_clients_rows_are_standardised_by_its_own(table):
    """Of 1 and 3 the mean is 2, the deviation 1; what does not vary is centred, what is missing is 0."""
    x, y = prepared(table, [0, 1, 2], [0, 1, 2, 3])
    assert x.tolist() == [[-1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0], [98, 2, 0, 0]]
    assert (x.dtype, y.dtype, tuple(y.shape)) == (torch.float32, torch.float32, (4, 1))


def test_another_client_has_others(table):
    x, _ = prepared(table, [1, 3], [1, 3])
    assert x.tolist() == [[-1, -1, 0, 0], [1, 1, 0, 0]]


def test_large_numbers_keep_their_differences():
    """In float32 all the way, the mean would be rounded by more than the numbers differ."""
    rng = np.random.default_rng(0)
    x = (16_000_000 + rng.integers(0, 3, (100, 1))).astype(np.float32)
    table = Table({"predicts": "numbers", "outputs": 1, "numbers": [0]}, {"x": x, "y": x})
    values, _ = prepared(table, range(100), range(100))
    assert values.mean().item() == pytest.approx(0, abs=1e-6)
    assert values.square().mean().item() == pytest.approx(1, abs=1e-6)


def test_rows_do_not_change_what_is_kept(table):
    before = X.copy()
    prepared(table, [0, 1], [0, 1])
    np.testing.assert_array_equal(X, before)

"""The fixed fifth."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.data.splits import held_out_fifth


@given(st.lists(st.integers(0, 3), min_size=5, max_size=200))
def test_a_fifth_of_each_class_is_held_out(labels):
    y = np.array(labels)
    train, test = held_out_fifth(y)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
    assert np.array_equal(train, np.sort(train))
    assert np.array_equal(test, np.sort(test))
    assert len(test) == len(y) // 5
    for label in range(4):
        assert abs(np.sum(y[test] == label) - np.sum(y == label) / 5) < 1


def test_numbers_are_held_out_all_over_their_range_and_each_client_by_itself():
    ids, y = np.repeat([1, 0], 50), np.tile(np.arange(50.0)[::-1], 2)
    _, test = held_out_fifth(y, ids)
    for client in (0, 1):
        assert (np.sort(y[test[ids[test] == client]]) // 5).tolist() == list(range(10))


@given(st.lists(st.integers(0, 20), min_size=5, max_size=60))
def test_nobody_loses_its_only_row(owners):
    ids = np.array(owners)
    train, test = held_out_fifth(np.zeros(len(ids)), ids)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(ids)))
    assert set(ids[train]) == set(owners)
    assert len(test) <= len(ids) // 5


def test_a_site_of_one_row_trains_on_it():
    """Of nine rows the fifth in order would be held out: the only one of client 1."""
    ids = np.array([0, 0, 0, 0, 1, 2, 2, 2, 2, 2])
    train, test = held_out_fifth(np.zeros(10), ids)
    assert 4 in train
    assert ids[test].tolist() == [2]


def test_it_is_always_the_same_fifth():
    """Of one class: the rows to which NumPy's shuffle with seed 0 gives the places 4 and 9."""
    order = np.random.default_rng(0).permutation(10).tolist()
    assert set(held_out_fifth(np.zeros(10))[1]) == {order.index(4), order.index(9)}

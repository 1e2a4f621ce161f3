"""The bound on an update's norm where tensors have several names."""

import numpy as np
import pytest

from strategies import FedAvg

from ..helpers import one_round

START = {name: np.zeros(1, np.float32) for name in ("a", "a.again", "b", "frozen")}


def clipped(update, **arguments):
    """One client's update, by name, after a bound of 1."""
    strategy = FedAvg(clip_update_norm=1.0, min_train_nodes=1, min_available_nodes=1, **arguments)
    names = dict(zip(START, update, strict=True))
    got = one_round(strategy, START, [{n: np.full(1, v, np.float32) for n, v in names.items()}], [1])
    return [float(got[name][0]) for name in START]


def test_a_tied_tensor_counts_once_and_both_names_are_scaled():
    """(3, 4) is of norm 5; were 3 counted twice, of the root of 34."""
    tied = {"trainable": ["b", "a", "a.again"], "tied": [("a.again", "a")]}
    assert clipped((3, 3, 4, 1), **tied) == pytest.approx([0.6, 0.6, 0.8, 1])
    assert clipped((3, 3, 4, 1), trainable=tied["trainable"])[2] == pytest.approx(4 / 34**0.5)


@pytest.mark.parametrize("lie", [(0, 3, 4, 0), (3, 0, 4, 0)])
def test_a_tensor_answered_differently_under_its_names_is_as_long_as_the_longest(lie):
    assert clipped(lie, tied=[("a", "a.again")]) == pytest.approx([value / 5 for value in lie])


def test_a_name_that_is_not_stepped_counts_nothing():
    assert clipped((3, 3, 4, 100), trainable=["a", "b"], tied=[("a", "frozen")])[2] == pytest.approx(0.8)

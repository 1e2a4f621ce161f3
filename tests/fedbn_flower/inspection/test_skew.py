"""Label skew and sizes of a divided dataset: by hand, by SciPy, by other formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from fedbn_flower.inspection.skew import LabelSkew, gini

COUNTS = st.integers(2, 5).flatmap(
    lambda classes: st.lists(
        st.lists(st.integers(0, 20), min_size=classes, max_size=classes).filter(any), min_size=1, max_size=6
    )
)


def test_clients_of_one_class_each():
    """p = (1, 0) and q = (1/2, 1/2): the divergence is H(3/4, 1/4) - 1/2 = 0.311278 bits."""
    skew = LabelSkew.of(np.array([[4, 0], [0, 4]]))
    assert skew.total_variation.tolist() == [0.5, 0.5]
    assert skew.jensen_shannon == pytest.approx([0.557923, 0.557923], rel=1e-5)
    assert skew.effective_classes.tolist() == [1, 1]
    assert skew.present.tolist() == [1, 1]


def test_clients_of_equal_shares_and_other_sizes():
    """Of shares 1/2, 1/4 and 1/4 the entropy is 3/2 bits, and so many classes count as 2^1.5."""
    skew = LabelSkew.of(np.array([[2, 1, 1], [8, 4, 4]]))
    assert skew.total_variation == pytest.approx([0, 0])
    assert skew.jensen_shannon == pytest.approx([0, 0], abs=1e-7)
    assert skew.effective_classes == pytest.approx([2**1.5, 2**1.5])


@given(COUNTS)
def test_the_distance_is_that_of_scipy(counts):
    counts = np.array(counts)
    expected = [jensenshannon(client, counts.sum(0), base=2) for client in counts]
    assert LabelSkew.of(counts).jensen_shannon == pytest.approx(np.nan_to_num(expected), abs=1e-6)


def test_sizes():
    assert gini([5, 5, 5]) == 0
    assert gini([0, 0, 0, 8]) == pytest.approx(0.75)  # 1 - 1/4


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_the_coefficient_is_the_mean_difference_of_all_pairs(sizes):
    sizes = np.array(sizes)
    differences = np.abs(sizes[:, None] - sizes).mean()
    assert gini(sizes) == pytest.approx(differences / (2 * sizes.mean()))

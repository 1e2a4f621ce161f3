"""Values that are equal to the bit."""

import numpy as np
import pytest

from fedbn_flower.core.bits import comparable

NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (NAN, NAN, True),
        (0.0, -0.0, False),
        (1, 1.0, False),
        (True, 1, False),
        ([1.0, NAN], [1.0, NAN], True),
        ({"loss": [{"n": np.array([NAN, 0.0])}]}, {"loss": [{"n": np.array([NAN, 0.0])}]}, True),
        (np.array([0.0]), np.array([-0.0]), False),
        (np.zeros(2), np.zeros((2, 1)), False),
        (np.zeros(2), np.zeros(2, np.int64), False),
        (np.float32(1), np.float64(1), False),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 1], False),
    ],
)
def test_bits_shape_and_type_decide(one, other, same):
    assert (comparable(one) == comparable(other)) is same

"""Numbers as words: their sums are those of floats, to what a float64 holds."""

from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbn_flower.secagg.integers import (
    COUNT,
    LARGEST,
    MOST_CLIENTS,
    NUMBER,
    WORDS,
    check_room,
    sum_of,
    words_of,
)

finite = st.floats(-1e15, 1e15, allow_nan=False)


@given(st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=9), st.sampled_from([32, 64]))
def test_a_sum_of_words_is_the_sum(clients, bits):
    total = sum(words_of(np.array(numbers), NUMBER) for numbers in clients).astype(f"u{bits // 8}")
    assert total.size == WORDS[NUMBER] * 3
    wanted = [fsum(column) for column in zip(*clients, strict=True)]
    greatest = max(abs(number) for numbers in clients for number in numbers)
    np.testing.assert_allclose(
        sum_of(total, NUMBER, len(clients)), wanted, rtol=1e-15, atol=greatest * 1e-15 + 1e-17
    )


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=9))
def test_counts_are_exact(counts):
    total = sum(words_of(np.array([float(count)]), COUNT) for count in counts)
    assert sum_of(total, COUNT, len(counts)) == [sum(counts)]


def test_as_many_clients_as_there_may_be():
    """One by hand: every word of -1 + 2^62 but the last is 2^16 - 1, and 65535 of them fit 32 bits."""
    words = words_of(np.array([-1.0]), COUNT)
    assert words.tolist() == [2**16 - 1] * 3 + [2**14 - 1]
    total = words * MOST_CLIENTS
    assert total.max() < 2**32
    assert sum_of(total.astype(np.uint32), COUNT, MOST_CLIENTS) == [-MOST_CLIENTS]


@pytest.mark.parametrize("number", [1e-14, 3.5e-9, -0.5, 1e12 + 0.25, -LARGEST])
def test_small_and_great_numbers_keep_their_digits(number):
    assert sum_of(words_of(np.array([number]), NUMBER), NUMBER, 1) == pytest.approx(
        [number], rel=1e-4 if abs(number) < 1e-13 else 1e-9
    )


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30, -LARGEST * 1.001])
def test_what_no_sum_has_room_for_is_refused_by_name(number):
    check_room(np.array([LARGEST, 0.0, -LARGEST]), "loss")
    with pytest.raises(ValueError, match=r"secagg: loss is not finite, or beyond 2\.3e\+18: no sum has room"):
        check_room(np.array([1.0, number]), "loss")

"""The wire form of arrays against NumPy's own."""

import numpy as np
import pytest
from flwr.app import Array
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays

from strategies.messages.npy import decoded, encoded, upper_halves, viewed

SHAPES = array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_])
def test_encoded_is_what_flower_writes_and_decoded_what_it_reads(dtype):
    @given(arrays(dtype, SHAPES))
    def check(array):
        ours, flowers = encoded(array), Array(array)
        assert (ours.dtype, ours.shape, ours.stype) == (flowers.dtype, flowers.shape, flowers.stype)
        assert ours.data == flowers.data
        back = decoded(flowers, array)
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
        np.testing.assert_array_equal(viewed(flowers), array, strict=True)

    check()


def test_another_layout_or_dtype_is_read_too():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(decoded(Array(np.asfortranarray(array)), array), array)
    assert decoded(Array(array.astype(np.float64)), array).dtype == np.float64
    np.testing.assert_array_equal(encoded(array.T).numpy(), array.T)
    np.testing.assert_array_equal(viewed(Array(np.asfortranarray(array))), array, strict=True)


def test_truncated_bytes_are_refused():
    array = np.arange(6, dtype=np.float32)
    whole = encoded(array)
    cut = Array(whole.dtype, whole.shape, whole.stype, whole.data[:-1])
    with pytest.raises(ValueError, match="buffer size"):
        decoded(cut, array)


def test_bfloat16_by_hand():
    """Ties go to the even one, the greatest stays finite, and a NaN is one without its low bits, too."""
    halves = {
        0x3F800000: 0x3F80, 0x3F808000: 0x3F80, 0x3F808001: 0x3F81, 0x3F818000: 0x3F82, 0x7F7FFFFF: 0x7F7F,
        0xFF800000: 0xFF80, 0x7F800001: 0x7FC0, 0x7FC00000: 0x7FC0, 0xFF812345: 0xFFC1,
    }  # fmt: skip
    found = upper_halves(np.array(list(halves), np.uint32).view(np.float32))
    assert found.tolist() == list(halves.values())

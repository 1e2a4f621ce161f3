"""Where the channels of an array are: one rule for arrays, NumPy files and inputs of masks."""

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.data.images.kind import channels_first

NOT_LAST = ", is taken for the channels, not the last"


@pytest.mark.parametrize(
    ("shape", "becomes", "said"),
    [
        ((16, 20), (1, 16, 20), ""),
        ((3, 16, 20), (3, 16, 20), ""),
        ((2, 16, 20), (2, 16, 20), ""),
        ((16, 20, 4), (4, 16, 20), "the last axis of x, uint8 (6, 16, 20, 4), is taken for the channels"),
        ((16, 20, 1), (1, 16, 20), "the last axis of x, uint8 (6, 16, 20, 1), is taken for the channels"),
        # Both ends may be channels: 1 and 3 are usual.
        ((3, 16, 4), (3, 16, 4), ""),
        ((4, 16, 3), (3, 4, 16), "the last axis of x, uint8 (6, 4, 16, 3), is taken for the channels"),
        ((1, 28, 3), (1, 28, 3), f"the second axis of x, uint8 (6, 1, 28, 3){NOT_LAST}"),
        ((2, 28, 4), (2, 28, 4), f"the second axis of x, uint8 (6, 2, 28, 4){NOT_LAST}"),
    ],
)
def test_channels_are_first_by_one_rule(shape, becomes, said):
    """Of arrays, see `api/test_arrays.py`, and of files."""
    x = np.random.default_rng(0).integers(0, 256, (6, *shape), np.uint8)
    expected = np.moveaxis(x, -1, 1) if said.startswith("the last") else x.reshape(6, *becomes)
    found, notes = channels_first(x, "x")
    np.testing.assert_array_equal(found, expected)
    assert [note.text for note in notes] == ([said] if said else [])


def test_files_have_them_by_it_too(load, tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (6, 16, 20, 4), np.uint8)
    for split in ("train", "test"):
        np.save(tmp_path / f"{split}-images.npy", x)
        np.save(tmp_path / f"{split}-labels.npy", np.arange(6) % 2)
    data = load(tmp_path)
    np.testing.assert_array_equal(data.train.columns["x"], np.moveaxis(x, -1, 1))
    assert data.notes[0].text.startswith("the last axis of train-images.npy, uint8 (6, 16, 20, 4), is taken")


def test_an_array_without_channels_is_refused():
    message = r"^x, uint8 \(6, 16, 20, 5\), has no axis for the channels; expected 1 to 4 channels before"
    with pytest.raises(UserError, match=message):
        channels_first(np.zeros((6, 16, 20, 5), np.uint8), "x")

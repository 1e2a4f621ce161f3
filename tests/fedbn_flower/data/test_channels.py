"""Where the channels of an array are: one rule for arrays, NumPy files and inputs of masks."""

import numpy as np
import pytest

from fedbn_flower.core.errors import UserError
from fedbn_flower.data.images.kind import channels_first
from fedbn_flower.data.readers.arrays import keep_arrays


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
        (
            (1, 28, 3),
            (1, 28, 3),
            "the second axis of x, uint8 (6, 1, 28, 3), is taken for the channels, not the last",
        ),
        (
            (2, 28, 4),
            (2, 28, 4),
            "the second axis of x, uint8 (6, 2, 28, 4), is taken for the channels, not the last",
        ),
    ],
)
def test_arrays_and_files_have_channels_first_by_one_rule(load, cache_dir, tmp_path, shape, becomes, said):
    x = np.random.default_rng(0).integers(0, 256, (6, *shape), np.uint8)
    expected = np.moveaxis(x, -1, 1) if said.startswith("the last") else x.reshape(6, *becomes)
    found, notes = channels_first(x, "x")
    np.testing.assert_array_equal(found, expected)
    assert [note.text for note in notes] == ([said] if said else [])
    y = np.arange(6) % 2
    arrays = dict(x=x, y=y, x_test=x, y_test=y)
    name = keep_arrays(cache_dir, arrays)
    for split in ("train", "test"):
        np.save(tmp_path / f"{split}-images.npy", x)
        np.save(tmp_path / f"{split}-labels.npy", y)
    for dataset, called in ((name, "x"), (str(tmp_path), "train-images.npy")):
        data = load(dataset)
        np.testing.assert_array_equal(data.train.columns["x"], expected)
        assert [note.text for note in data.notes][:1] == (
            [said.replace("x,", f"{called},", 1)] if said else []
        )


def test_an_array_without_channels_is_refused():
    message = (
        r"^x, uint8 \(6, 16, 20, 5\), has no axis for the channels; expected 1 to 4 channels before or after"
    )
    with pytest.raises(UserError, match=message):
        channels_first(np.zeros((6, 16, 20, 5), np.uint8), "x")

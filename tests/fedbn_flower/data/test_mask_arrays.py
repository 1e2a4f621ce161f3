"""Masks from arrays, NumPy files and Datasets: which axes are the pixels, and what is refused."""

import numpy as np
import pytest

pytest.importorskip("fedbn_flower.own_data")

from fedbn_flower.core.errors import UserError
from fedbn_flower.data.readers.arrays import keep_arrays
from fedbn_flower.data.splits import held_out_fifth
from fedbn_flower.own_data.torch_datasets import pooled

from ..circles import circles

VOLUMES = (3, 4, 5)


@pytest.mark.parametrize(
    ("x", "y", "shape", "dtype"),
    [
        ((4, 3), (4, 3), (1, 4, 3), np.uint8),
        ((3, 4, 5), (4, 5), (3, 4, 5), np.uint8),
        ((4, 5, 3), (4, 5), (3, 4, 5), np.uint8),
        ((4, 5, 3), (4, 5), (3, 4, 5), np.float64),
        ((7, 4, 5), (4, 5), (7, 4, 5), np.int16),
        ((1, 4, 5), (1, 4, 5), (1, 4, 5), np.uint8),
        (VOLUMES, VOLUMES, (1, *VOLUMES), np.int16),
        ((2, *VOLUMES), VOLUMES, (2, *VOLUMES), np.uint8),
        ((*VOLUMES, 2), VOLUMES, (2, *VOLUMES), np.float64),
    ],
)
def test_the_mask_says_which_axes_are_the_pixels(cache_dir, load, x, y, shape, dtype):
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 200, (6, *x)).astype(dtype)
    masks = rng.integers(0, 3, (6, *y))
    name = keep_arrays(cache_dir, {"x": inputs, "y": masks, "x_test": inputs[:2], "y_test": masks[:2]})
    data = load(name)
    assert (data.spec.shape, data.spec.outputs, data.spec.predicts) == (shape, 3, "masks")
    found = data.train.columns
    assert found["x"].dtype == (np.uint8 if dtype is np.uint8 else np.float32)
    np.testing.assert_array_equal(found["y"].reshape(masks.shape), masks)
    channels_last = len(x) == len(y) + 1 and x[-1] == shape[0] and x[0] != shape[0]
    assert any("last axis of x" in note.text for note in data.notes) == channels_last
    expected = np.moveaxis(inputs, -1, 1) if channels_last else inputs
    np.testing.assert_array_equal(found["x"].ravel(), expected.ravel())


def test_masks_of_two_sizes_are_one_line_with_void_too(cache_dir, load):
    x, y = np.ones((6, 1, 4, 4), np.uint8), np.tile(np.array([0, 1, 255, 2], np.uint8), (6, 4, 1))
    arrays = {"x": x, "y": y, "x_test": x[:2, :, :3, :3], "y_test": y[:2, :3, :3]}
    with pytest.raises(UserError, match="expected the same"):
        load(keep_arrays(cache_dir, arrays))


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
def test_masks_may_have_any_number_type(cache_dir, load, dtype):
    x, y = circles(0)
    name = keep_arrays(cache_dir, {"x": x, "y": y.astype(dtype), "x_test": x, "y_test": y.astype(dtype)})
    np.testing.assert_array_equal(load(name).train.columns["y"], y)


@pytest.mark.parametrize(
    ("x", "y", "told"),
    [
        (np.zeros((4, 8, 8), np.uint8), np.full((4, 8, 8), 0.5), r"y is float64 .*; expected masks of class"),
        (np.zeros((4, 8, 8), np.uint8), np.full((4, 8, 8), -1), r"y is int64 .*; expected masks of class"),
        (np.zeros((4, 8, 8), np.uint8), np.full((4, 8, 8), 300), r"y is int64 .*; expected masks of class"),
        (np.zeros((4, 8, 8)), np.zeros((4, 8, 7)), r"x is \(4, 8, 8\), with masks \(4, 8, 7\); expected as"),
        (np.zeros((3, 8, 8)), np.zeros((4, 8, 8)), r"x is \(3, 8, 8\), with masks \(4, 8, 8\); expected as"),
        (np.full((4, 8, 8), np.nan), np.zeros((4, 8, 8)), "x holds values that are not finite"),
    ],
)
def test_arrays_that_are_no_masks_are_refused(cache_dir, x, y, told):
    with pytest.raises(UserError, match=told):
        keep_arrays(cache_dir, {"x": x, "y": y, "x_test": x, "y_test": y})


@pytest.mark.parametrize(("tests", "dtype"), [(True, np.uint8), (False, np.float32)])
def test_numpy_files(load, tmp_path, tests, dtype):
    x, y = circles(0, count=10)
    for split in ("train", "test")[: 1 + tests]:
        for kind, array in (("images", x.astype(dtype)), ("masks", y)):
            np.save(tmp_path / f"{split}-{kind}.npy", array)
    data = load(tmp_path)
    train = slice(None) if tests else held_out_fifth(np.zeros(10))[0]
    np.testing.assert_array_equal(data.train.columns["x"][:, 0], x[train])
    np.testing.assert_array_equal(data.train.columns["y"], y[train])
    assert len(data.test) == (10 if tests else 2)


def test_datasets_whose_targets_are_masks(cache_dir, load):
    """With the channel that torchvision's masks have."""
    clients = [list(zip(x[:, None], y[:, None], strict=True)) for x, y in (circles(0), circles(1))]
    data = load(keep_arrays(cache_dir, *pooled(clients)), group_column="client")
    assert (data.spec.shape, data.spec.outputs) == ((1, 16, 16), 2)
    assert [(data.train.groups == name).sum() for name in "01"] == [10, 10]
    np.testing.assert_array_equal(data.train.columns["y"][0], circles(0)[1][0])

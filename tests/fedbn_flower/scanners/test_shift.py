"""The domains of a feature shift."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_sample_images

from fedbn_flower.core.errors import UserError
from fedbn_flower.core.notes import Note
from fedbn_flower.data.dataset import Dataset, Kind
from fedbn_flower.data.images.shift_spec import SHIFTS, seen_by
from fedbn_flower.data.readers.arrays import keep_arrays
from fedbn_flower.job.held_out import whole_split
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.models import InputSpec
from fedbn_flower.scanners import shift
from fedbn_flower.site.inputs import local_task

ALL = "none+inverted+rotated+noisy+coloured+blended"


@pytest.fixture
def columns(load):
    return load("digits", feature_shift=ALL).train.columns


def test_masks_turn_with_their_images_and_stay_otherwise(load, cache_dir):
    """A mask that is the image's own bright square: where it is turned to, the turned image is bright."""
    x = np.zeros((4, 16, 16), np.uint8)
    x[:, 5:10, 3:12] = 250
    y = (x > 0).astype(np.uint8)
    name = keep_arrays(cache_dir, {"x": x, "y": y, "x_test": x, "y_test": y})
    split = load(name, feature_shift="none+rotated+inverted").train
    assert set(split.columns) == {"x", "x-inverted", "x-rotated", "x-mixed", "y", "y-rotated", "y-mixed"}
    turned, bright = split.columns["y-rotated"], split.columns["x-rotated"][:, 0] > 125
    corners = shift.rotated(np.full((4, 1, 16, 16), 255, np.uint8), None)[:, 0] < 125
    assert ((turned == 255) != corners).mean() < 0.02
    assert (turned == 1)[bright].mean() > 0.95
    assert bright[turned == 1].mean() > 0.95
    of_client = [seen_by(split.columns, "none+rotated+inverted", client)["y"] for client in range(3)]
    for found, expected in zip(of_client, (y, turned, y), strict=True):
        np.testing.assert_array_equal(found, expected)
    mixed = seen_by(split.columns, "none+rotated+inverted", None)["y"]
    np.testing.assert_array_equal(mixed, np.stack([y[0], turned[1], y[2], y[3]]))


def bilinear(image, row, column):
    """Its value between the pixels, black outside."""
    top, left = int(np.floor(row)), int(np.floor(column))
    total = 0.0
    for i in (top, top + 1):
        for j in (left, left + 1):
            if 0 <= i < len(image) and 0 <= j < len(image):
                total += (1 - abs(row - i)) * (1 - abs(column - j)) * image[i, j]
    return total


def test_inverted_and_rotated_are_those_of_geometry(columns):
    plain = columns["x"]
    np.testing.assert_array_equal(columns["x-inverted"].astype(int) + plain, 255)
    image, turned = plain[5, 0].astype(float), columns["x-rotated"][5, 0]
    half = np.sqrt(0.5)
    for i in range(8):
        for j in range(8):  # where what is now at (i, j) came from, about the centre (3.5, 3.5)
            row, column = i - 3.5, j - 3.5
            expected = bilinear(image, half * (row + column) + 3.5, half * (column - row) + 3.5)
            assert abs(turned[i, j] - expected) <= 1


def test_noise_has_the_width_that_it_says():
    images = np.full((50, 1, 40, 40), 128, np.uint8)
    found = shift.noisy(images, np.random.default_rng(0)).astype(float)
    inside = 0.9876  # of the variance of a normal cut off at 2.5 standard deviations either side
    assert abs(found.mean() - 128) < 1
    assert abs(found.std() / 51 - np.sqrt(inside)) < 0.02
    assert not np.array_equal(found[0], found[1])


def test_a_colour_is_one_factor_a_channel(columns):
    plain, found = columns["x"].astype(float), columns["x-coloured"].astype(float)
    np.testing.assert_array_equal(found.max(1), plain[:, 0])
    at = plain[:, 0].reshape(len(plain), -1).argmax(1)
    factors = found.reshape(len(found), 3, -1)[np.arange(len(found)), :, at] / 255
    bright = plain.max((1, 2, 3)) == 255
    assert bright.sum() > 1000
    expected = factors[bright][:, :, None, None] * plain[bright]
    assert np.abs(found[bright] - expected).max() <= 1
    assert len(np.unique(factors, axis=0)) > 1000


def test_blended_is_the_distance_to_a_patch_of_a_photo(columns):
    photos = [photo.transpose(2, 0, 1) for photo in load_sample_images().images]
    black, white = (np.full((4, 3, 6, 7), value, np.uint8) for value in (0, 255))
    patches = shift.blended(black, np.random.default_rng(0))
    np.testing.assert_array_equal(shift.blended(white, np.random.default_rng(0)), 255 - patches)
    for patch in patches:
        wrapped = [np.pad(photo, ((0, 0), (0, 5), (0, 6)), mode="wrap") for photo in photos]
        found = 0
        for photo in wrapped:
            corner = (photo[:, :-5, :-6] == patch[:, :1, :1]).all(0)
            found += sum((photo[:, i : i + 6, j : j + 7] == patch).all() for i, j in np.argwhere(corner))
        assert found
    plain, seen = columns["x"].astype(int), columns["x-blended"].astype(int)
    assert (seen[(plain == 0)] > 0).mean() > 0.9


def test_what_is_drawn_depends_on_the_row_alone(load, columns, monkeypatch):
    monkeypatch.setattr(shift, "CHUNK", 100)
    again = load("digits", feature_shift="+".join(SHIFTS[::-1])).train.columns
    for name in SHIFTS:
        np.testing.assert_array_equal(again[f"x-{name}"], columns[f"x-{name}"])


def test_images_get_three_channels_only_for_colours(load):
    grey, colour = (load("digits", feature_shift=text) for text in ("none+inverted", "coloured+none"))
    assert (grey.spec.channels, grey.notes) == (1, ())
    assert colour.spec.channels == 3
    converted = (
        "the images are converted to three channels, because some domains of feature-shift are in colour"
    )
    assert colour.notes == (Note("inputs", converted),)
    assert colour.kind.facts["mean"] == grey.kind.facts["mean"] * 3
    np.testing.assert_array_equal(colour.train.columns["x"][:, 2], grey.train.columns["x"][:, 0])


def test_a_client_sees_its_domain_and_the_server_all_in_turn(configured):
    chosen = {
        "feature_shift": "none+inverted+noisy",
        "partition": "iid",
        "num_clients": 5,
        "val_fraction": 0.1,
    }
    config = configured(**chosen)
    data = inputs_of(config).dataset
    names = ["x", "x-inverted", "x-noisy", "x", "x-inverted"]
    for client, name in enumerate(names):
        task = local_task(config, client, {})
        for examples, split in (
            (task.train, data.train),
            (task.evaluation["val"], data.train),
            (task.evaluation["test"], data.test),
        ):
            images, _ = examples.prepared(np.arange(len(examples)))
            expected = split.columns[name][examples.rows] / np.float32(255)
            np.testing.assert_array_equal(images.numpy(), expected)
            assert list(examples.columns) == ["x", "y"]
    whole = whole_split(inputs_of(config), "test")
    for row in range(6):
        np.testing.assert_array_equal(whole.columns["x"][row], data.test.columns[names[row % 3]][row])


def test_what_cannot_be_shifted_is_reported(configured, load):
    with pytest.raises(UserError, match="feature-shift: unknown name 'inverse' .did you mean 'inverted'"):
        configured(feature_shift="none+inverse")
    data = load("digits")
    other = replace(data, kind=Kind({}, {}), spec=Dataset.without_examples(data.spec).spec)
    with pytest.raises(
        UserError, match="feature-shift: 'noisy' is not allowed; expected 'none': only images"
    ):
        shift.shift_images(other, "noisy")
    other = replace(data, spec=InputSpec((2, 8, 8), 10))
    with pytest.raises(UserError, match="'coloured' is not allowed; expected no colours: .* 2 channels"):
        shift.shift_images(other, "coloured")


def test_the_noise_of_training_and_test_images_is_independent(load, cache_dir):
    """The same grey images in both sets: their noises have nothing to do with each other."""
    grey, y = np.full((50, 16, 16), 128, np.uint8), np.arange(50) % 2
    name = keep_arrays(cache_dir, {"x": grey, "y": y, "x_test": grey, "y_test": y})
    data = load(name, feature_shift="none+noisy")
    train, test = (split.columns["x-noisy"].astype(float).ravel() for split in (data.train, data.test))
    assert abs(np.corrcoef(train, test)[0, 1]) < 5 / np.sqrt(train.size)

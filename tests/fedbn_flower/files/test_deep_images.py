"""Images as tensors; of 16 bits: what is learnt from them, how sites agree on them, how they are drawn."""

import struct

import numpy as np
import pytest
import torch
from PIL import Image

from clients import Examples
from fedbn_flower.core.errors import UserError
from fedbn_flower.data.images.kind import Images, ScalePixels
from fedbn_flower.data.images.moments import Moments
from fedbn_flower.data.statistics import features
from fedbn_flower.files.decoding import ImageDecoder, ImageFile


@pytest.fixture
def scans(tmp_path):
    """Forty pictures of 8x8 pixels and two levels, which are the same by 8 bits, with noise, of two sites."""
    rng = np.random.default_rng(0)
    for site in ("lyon", "turin"):
        for name, level in (("a", 1360), ("b", 1400)):
            (tmp_path / site / name).mkdir(parents=True)
            for i in range(20):
                values = level + rng.integers(-15, 15, (8, 8))
                Image.fromarray(values.astype(np.uint16)).save(tmp_path / site / name / f"{i}.png")
    return tmp_path


def test_a_batch_is_scaled_and_standardised():
    columns = {"x": np.array([[[[0, 255]]], [[[51, 102]]]], np.uint8), "y": np.array([1, 0])}
    rows = np.array([1])
    images = Images({"classes": 2, "mean": [0.2], "std": [0.5]}, columns)
    for normalize, expected in ((True, [[[[0.0, 0.4]]]]), (False, [[[[0.2, 0.4]]]])):
        examples = Examples(columns, rows, images.prepare(rows, normalize))
        batch, labels = next(examples.load([np.array([0])]))
        np.testing.assert_allclose(batch.numpy(), expected, atol=1e-6)
        assert labels.tolist() == [0]


def test_8_bits_are_prepared_to_the_bit_as_ever():
    x = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    assert torch.equal(ScalePixels()({"x": x, "y": x})[0], x.float().div(255))


def test_moments_that_no_images_have_are_refused():
    deep = Moments.of(np.full((2, 1, 2, 2), 300, np.uint16)).arrays()
    assert Moments.received(deep, 1).top == 65535
    for wrong in ({"top": np.array([1000.0])}, {"top": np.array([255.0])}, {"top": np.array([1.0, 2.0])}):
        with pytest.raises(ValueError, match=r"no images have such sums|expected count, sums, squares"):
            Moments.received(deep | wrong, 1)
    assert "top" not in Moments.of(np.full((2, 1, 2, 2), 200, np.uint8)).arrays()


def test_features_are_in_levels_of_8_bits(load, scans):
    data = load(scans)
    (found,) = features(data, [np.arange(len(data.train))], "none")
    assert found.mean[0] == pytest.approx(data.train.columns["x"].mean() / 257)
    assert found.edges[-1] == 256


def test_they_are_resized_between_their_levels(load, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(5):
            values = np.repeat(np.array([[1000, 3000]], np.uint16), 2, axis=0)
            Image.fromarray(values).save(tmp_path / name / f"{i}.png")
    x = load(tmp_path, image_size=4).train.columns["x"]
    by_pillow = np.asarray(Image.fromarray(values.astype(np.float32)).resize((4, 4)))
    np.testing.assert_array_equal(x[0, 0], np.rint(by_pillow))
    assert 1000 < x[0, 0, 0, 1] < x[0, 0, 0, 2] < 3000


def tiff_of_16_bits(pixels, order):
    """A TIFF in colour, uint16 (height, width, 3), little (<) or big endian (>); Pillow cannot write it."""
    (height, width, _), content = pixels.shape, pixels.astype(f"{order}u2").tobytes()
    bits = 8 + 2 + 9 * 12 + 4
    entries = {
        256: (3, 1, width), 257: (3, 1, height), 258: (3, 3, bits), 259: (3, 1, 1), 262: (3, 1, 2),
        273: (4, 1, bits + 6), 277: (3, 1, 3), 278: (3, 1, height), 279: (4, 1, len(content)),
    }  # fmt: skip
    found = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(entries))
    for tag, (kind, count, value) in entries.items():
        short = kind == 3 and count == 1
        packed = struct.pack(f"{order}HH" if short else f"{order}I", *((value, 0) if short else (value,)))
        found += struct.pack(f"{order}HHI", tag, kind, count) + packed
    return found + struct.pack(f"{order}IHHH", 0, 16, 16, 16) + content


@pytest.mark.parametrize("order", "<>")
def test_tiff_in_colour_keeps_every_level(order):
    pixels = np.random.default_rng(0).integers(0, 2**16, (5, 7, 3), np.uint16)
    (found,) = ImageDecoder(0).decode([ImageFile("a picture", tiff_of_16_bits(pixels, order))], 1)
    np.testing.assert_array_equal(found, pixels.transpose(2, 0, 1))


def test_a_feature_shift_of_them_is_refused(load, scans):
    with pytest.raises(
        UserError, match="^feature-shift: 'none.inverted' is not allowed; .* images of 8 bits"
    ):
        load(scans, feature_shift="none+inverted")

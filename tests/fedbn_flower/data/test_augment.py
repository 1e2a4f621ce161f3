"""Random crops and mirrors."""

import numpy as np
import pytest
import torch

from clients import Examples
from clients.examples import as_they_are
from clients.modules.rng import seeded
from fedbn_flower.data.images.augment import CropFlip
from fedbn_flower.job.checks.model_fit import check_fit
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.site.inputs import local_task


def possible(image, padding):
    """Every crop of a framed image, and its mirror, by their bytes."""
    _, height, width = image.shape
    framed = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    crops = [
        framed[:, top : top + height, left : left + width]
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
    ]
    return [np.ascontiguousarray(c).tobytes() for crop in crops for c in (crop, crop[:, :, ::-1])]


def test_each_image_is_one_of_its_crops_and_each_crop_is_as_likely():
    """3 x 3 places and two sides: 18 of them, by chi-squared on 17 degrees of freedom (40.8 at 0.1%)."""
    images = np.random.default_rng(0).random((2, 2, 5, 4), dtype=np.float32)
    batch = torch.from_numpy(np.repeat(images, 1800, axis=0))
    with seeded(1):
        augmented, y = CropFlip(1)(batch, labels := torch.arange(len(batch)))
        augmented = augmented.numpy()
    assert y is labels
    assert augmented.shape == batch.shape
    for image, outputs in zip(images, np.split(augmented, 2), strict=True):
        crops = possible(image, 1)
        assert len(set(crops)) == 18
        counts = np.bincount([crops.index(output.tobytes()) for output in outputs], minlength=18)
        assert ((counts - 100) ** 2 / 100).sum() < 40.8
    assert not np.array_equal(*np.split(augmented, 2))


def test_the_same_seed_gives_the_same_crops_and_only_training_is_augmented():
    columns = {"x": np.random.default_rng(0).random((30, 1, 8, 8), dtype=np.float32), "y": np.zeros(30)}
    examples = Examples(columns, np.arange(30), as_they_are, CropFlip(1))
    batches = np.split(np.arange(30), 3)

    def loaded(seed, training=True):
        with seeded(seed):
            return torch.cat([x for x, _ in examples.load(batches, training=training)]).numpy()

    np.testing.assert_array_equal(loaded(3), loaded(3))
    assert not np.array_equal(loaded(3), loaded(4))
    np.testing.assert_array_equal(loaded(3, training=False), columns["x"])


@pytest.mark.parametrize("shape", [(6, 8), (6, 6, 8)])
def test_masks_are_cropped_and_flipped_like_their_images(shape):
    """A mask that holds the image's own values stays equal to it; where the image is padded, it is void."""
    masks = np.random.default_rng(0).integers(1, 200, (50, *shape), np.uint8)
    with seeded(1):
        x, y = CropFlip(2, masks=True)(torch.from_numpy(masks[:, None]).float(), torch.from_numpy(masks))
    assert y.dtype == torch.uint8
    assert not np.array_equal(y, masks)
    np.testing.assert_array_equal(np.where(y == 255, 0, y), x[:, 0])
    padded = (x[:, 0] == 0).float().mean()
    np.testing.assert_array_equal(x[:, 0] == 0, y == 255)
    assert 0.1 < padded < 0.5


def test_a_run_augments_what_clients_train_on_and_nothing_else(configured):
    task = local_task(configured(augment="crop-flip", val_fraction=0.1), 0, {})
    assert task.train.augment == CropFlip(1)  # an eighth of 8 pixels
    assert {split: examples.augment for split, examples in task.evaluation.items()} == dict.fromkeys(
        ("train", "val", "test")
    )
    assert local_task(configured(), 0, {}).train.augment is None
    check_fit(inputs_of(configured(augment="crop-flip")))

"""Training on patches: where they lie, what a run makes of them."""

import numpy as np
import pytest
import torch

from fedbn_flower.clients.modules.rng import seeded
from fedbn_flower.core.errors import UserError
from fedbn_flower.data.images.patches import RandomPatches, patch_sizes
from fedbn_flower.job.checks.model_fit import check_fit
from fedbn_flower.job.inputs import inputs_of
from fedbn_flower.models import InputSpec
from fedbn_flower.site.inputs import local_task

MASKS = InputSpec((1, 8, 10, 12), 2, "masks")


def places(shape, count=64):
    """Volumes whose values are their numbers, and masks that are 1 in one corner."""
    numbers = np.arange(np.prod(shape)).reshape(shape)
    masks = np.zeros((count, *shape), np.uint8)
    masks[:, -2:, -2:, -2:] = 1
    masks[::2] = 255  # void
    return torch.from_numpy(np.stack([numbers[None]] * count)).float(), torch.from_numpy(masks)


def test_patches_are_parts_of_images_with_their_masks():
    images, masks = places((8, 10, 12))
    with seeded(0):
        x, y = RandomPatches((4, 5, 6))(images, masks)
    assert (x.shape, y.shape) == ((64, 1, 4, 5, 6), (64, 4, 5, 6))
    starts = []
    for number, (patch, mask) in enumerate(zip(x[:, 0], y, strict=True)):
        first = np.unravel_index(int(patch[0, 0, 0]), (8, 10, 12))
        place = tuple(slice(s, s + n) for s, n in zip(first, (4, 5, 6), strict=True))
        np.testing.assert_array_equal(patch, images[number, 0][place])
        np.testing.assert_array_equal(mask, masks[number][place])
        starts.append(first)
    assert np.array(starts).min(0).tolist() == [0, 0, 0]
    assert np.array(starts).max(0).tolist() == [4, 5, 6]


def test_half_of_the_patches_lie_about_the_foreground_and_void_is_none():
    images, masks = places((8, 10, 12), 2000)
    with seeded(0):
        _, y = RandomPatches((4, 5, 6))(images, masks)
    has = ((y == 1).flatten(1).any(1)).float()
    # Starts from 0 to 4, 5 and 6; the corner's first voxel is 6, 8 and 10: starts above 2, 3 and 4 meet it.
    anywhere = (2 / 5) * (2 / 6) * (2 / 7)
    assert has[1::2].mean() == pytest.approx(0.5 + 0.5 * anywhere, abs=0.04)
    assert not (y[::2] == 1).any()


def test_void_is_no_foreground():
    """Of patches anywhere few have a voxel of the corner; about the foreground more than half would."""
    images, masks = places((8, 10, 12), 1000)
    masks[:] = 0
    masks[:, -2:, -2:, -2:] = 255
    with seeded(0):
        _, y = RandomPatches((4, 5, 6))(images, masks)
    assert (y == 255).flatten(1).any(1).float().mean() == pytest.approx((2 / 5) * (2 / 6) * (2 / 7), abs=0.03)


def test_the_same_seed_draws_the_same_patches():
    images, masks = places((8, 10, 12))
    found = []
    for seed in (1, 1, 2):
        with seeded(seed):
            found.append(RandomPatches((4, 4, 4))(images, masks)[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize(
    ("given", "spec", "message"),
    [
        (
            4,
            InputSpec((1, 8, 8), 3),
            "patch-size: 4 is not allowed; expected 0 without masks: an example is 1x8x8",
        ),
        (9, MASKS, "patch-size: 9 is not allowed; expected at most 8x10x12, the size of an image"),
        ("4x11x4", MASKS, "patch-size: '4x11x4' is not allowed; expected at most 8x10x12"),
    ],
)
def test_patches_that_cannot_be_are_refused(given, spec, message):
    with pytest.raises(UserError) as error:
        patch_sizes(given, spec)
    assert str(error.value).startswith(message)


def test_sizes_of_patches():
    assert patch_sizes(0, MASKS) == ()
    assert patch_sizes(4, MASKS) == (4, 4, 4)
    assert patch_sizes("2x3x4", MASKS) == (2, 3, 4)


@pytest.fixture
def volumes():
    rng = np.random.default_rng(0)
    y = np.zeros((10, 8, 8, 8), np.uint8)
    for mask, start in zip(y, rng.integers(0, 5, (10, 3)), strict=True):
        mask[tuple(slice(s, s + 4) for s in start)] = 1
    x = (y + rng.normal(0, 0.1, y.shape)).astype(np.float32)
    return x[:8], y[:8], x[8:], y[8:]


@pytest.mark.slow
def test_a_run_learns_patches_and_is_evaluated_on_whole_volumes(run, volumes):
    """The model is made for patches; held-out volumes are whole, and no patch is bigger."""
    seen = []

    def recording(spec):
        from fedbn_flower.models import MODELS

        seen.append(spec.shape)
        return MODELS["unet-3d"](spec)

    keys = {"model": recording, "client": "fedbn", "strategy": "fedavg", "partition": "iid", "batch_size": 4}
    more = {"client_optimizer": "adam", "client_lr": 0.01, "local_epochs": 8, "rounds": 2}
    result = run(data=volumes, patch_size=4, **keys, **more)
    assert set(seen) == {(1, 4, 4, 4)}
    assert result.summary["pooled"]["dice"] > 0.8
    assert result.summary["failures"] == 0
    again = run(data=volumes, patch_size=4, **keys, **more)
    assert again.summary["pooled"] == result.summary["pooled"]


def test_only_training_is_on_patches(configured, tmp_path):
    from ..circles import write_circles

    config = configured(dataset=str(write_circles(tmp_path)), partition="natural:folder", patch_size=8)
    task = local_task(config, 0, {})
    assert task.train.augment == RandomPatches((8, 8))
    assert task.problem.windows == (8, 8)
    assert {examples.augment for examples in task.evaluation.values()} == {None}
    check_fit(inputs_of(config))
    assert inputs_of(config).model_spec.shape == (1, 8, 8)

"""Augmentation of torchvision and MONAI by name: what moves with what, what is refused."""

import numpy as np
import pytest
import torch

from fedbn_flower.clients.modules.rng import seeded
from fedbn_flower.core.errors import UserError
from fedbn_flower.data.images.augment import calls_of, transform_of
from fedbn_flower.models import InputSpec

CLASSES, MASKS = InputSpec((1, 8, 8), 3), InputSpec((1, 8, 8), 3, "masks")
VOLUMES = InputSpec((1, 6, 8, 8), 3, "masks")
RNG = np.random.default_rng(0)


def needs(name):
    if name.startswith("monai"):
        pytest.importorskip("monai", reason="needs monai, of the extra networks")


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("torchvision:RandomHorizontalFlip", MASKS),
        ("torchvision:RandomAffine:degrees=20,translate=0.2/0.2", MASKS),
        ("monai:RandFlip:prob=0.5,spatial_axis=1", MASKS),
        ("monai:RandFlip:prob=0.5", VOLUMES),
        ("monai:RandRotate90:prob=1,spatial_axes=1/2", VOLUMES),
    ],
)
def test_a_mask_moves_with_its_image(name, spec):
    """Images that are their masks stay so, and each is drawn on its own."""
    needs(name)
    masks = torch.from_numpy(RNG.integers(0, 3, (16, *spec.shape[1:])).astype(np.uint8))
    with seeded(1):
        x, y = transform_of(name, spec)(masks[:, None].float(), masks)
    assert y.dtype == torch.uint8
    assert type(x) is type(y) is torch.Tensor
    close = (x[:, 0] - y.float()).abs() < 0.01
    assert close.float().mean() > 0.95
    moved = (y != masks).flatten(1).any(1)
    assert moved.any()
    if "Horizontal" in name or "RandFlip" in name:
        assert not moved.all()


@pytest.mark.parametrize(
    "name", ["torchvision:RandomRotation:degrees=40", "monai:RandAffine:prob=1,rotate_range=0.5"]
)
def test_a_mask_gets_no_class_between_two(name):
    needs(name)
    masks = torch.from_numpy(RNG.choice(np.array([0, 200], np.uint8), (8, 8, 8)))
    with seeded(0):
        x, y = transform_of(name, MASKS)(masks[:, None] / 255, masks)
    assert not torch.equal(y, masks)
    assert set(y.unique().tolist()) == {0, 200}
    assert x.shape == (8, 1, 8, 8)


@pytest.mark.parametrize("name", ["torchvision:GaussianNoise", "monai:RandGaussianNoise:prob=1,std=0.5"])
def test_noise_leaves_masks_alone(name):
    needs(name)
    masks = torch.from_numpy(RNG.integers(0, 3, (4, 8, 8)).astype(np.uint8))
    with seeded(0):
        x, y = transform_of(name, MASKS)(torch.full((4, 1, 8, 8), 0.5), masks)
    assert torch.equal(y, masks)
    assert x.std() > 0.05


@pytest.mark.parametrize("name", ["torchvision:RandAugment", "monai:RandAffine:prob=1,rotate_range=0.5"])
def test_the_seed_decides(name):
    needs(name)
    images, found = torch.rand(8, 3, 8, 8), []
    for seed in (1, 1, 2):
        with seeded(seed):
            found.append(transform_of(name, InputSpec((3, 8, 8), 3))(images, torch.arange(8))[0])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flip", "augment: 'flip' is not allowed; expected none, crop-flip, or LIBRARY:NAME"),
        ("crop-flip+none", "augment: 'none' is not allowed"),
        ("torchvision:", "augment: 'torchvision:' is not allowed; expected LIBRARY:NAME"),
        ("torchvision:RandomRotation:degrees", "each argument once"),
        ("torchvision:RandomRotatoin", "unknown name 'RandomRotatoin' (did you mean 'RandomRotation'?)"),
        ("torchvision:functional", "unknown name 'functional'"),
        ("torchvision:RandomRotation", "expected what torchvision's RandomRotation takes: "),
        ("torchvision:RandomCrop:size=4", "one that keeps the size of an image, 1x8x8"),
        ("torchvision:RandomGrayscale:p=2", "torchvision's RandomGrayscale takes: "),
        ("monai:RandFlop", "unknown name 'RandFlop'"),
        ("monai:Flip", "unknown name 'Flip'"),
        ("monai:RandFlip:axis=1", "expected what monai's RandFlip takes: "),
        ("monai:RandSpatialCrop:roi_size=4,random_size=false", "unknown name 'RandSpatialCrop'"),
    ],
)
def test_what_is_wrong_is_one_line(name, message):
    needs(name)
    with pytest.raises(UserError) as error:
        [transform_of(one.text, CLASSES) for one in calls_of(name)]
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_torchvision_takes_intensities_as_they_are(configured):
    with pytest.raises(UserError, match="normalize: True is not allowed; expected false with augment"):
        configured(augment="crop-flip+torchvision:RandomRotation:degrees=10", normalize=True)


@pytest.mark.slow
def test_a_run_augments_by_several_in_turn(run):
    keys = {
        "dataset": "digits",
        "model": "linear",
        "strategy": "fedavg",
        "client": "shared",
        "partition": "iid",
    }
    plain = run(**keys).summary["global"]["loss"]
    turned = run(**keys, augment="crop-flip+torchvision:RandomRotation:degrees=20").summary
    assert turned["failures"] == 0
    assert turned["global"]["loss"] != plain

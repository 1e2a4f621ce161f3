"""The networks: their published sizes, and what they return."""

import numpy as np
import pytest
import torch
from torch import nn

from fedbn_flower.core.errors import UserError
from fedbn_flower.job.initial_model import build_model
from fedbn_flower.models import MODELS, InputSpec

MNIST, CIFAR, DIGITS = InputSpec((1, 28, 28), 10), InputSpec((3, 32, 32), 10), InputSpec((1, 8, 8), 10)
TEXT, MASKS = InputSpec((80,), 97, "characters"), InputSpec((1, 16, 16), 2, "masks")
RECURRENT = ("char-lstm", "char-lstm-small")


@pytest.mark.parametrize(
    ("name", "spec", "parameters"),
    [
        ("2nn", MNIST, 199_210),  # McMahan et al. 2017, section 3
        ("cnn", MNIST, 1_663_370),  # the same
        ("mlp-bn", MNIST, 784 * 128 + 128 + 2 * 128 + 128 * 10 + 10),
        ("simple-cnn", CIFAR, 62_006),  # 456 + 2416 + 48120 + 10164 + 850
        ("simple-cnn-bn", CIFAR, 62_006 + 2 * (6 + 16)),
        ("simple-cnn-gn", CIFAR, 62_006 + 2 * (6 + 16)),
        ("resnet20", CIFAR, 269_722),  # He et al. 2016, table 6: 0.27M
        ("cnn-bn", InputSpec((3, 28, 28), 10), 14_219_210),
        # Down, up, and the last convolution, each block's two BatchNorms counted with it.
        ("unet", MASKS, (2_512 + 13_952 + 55_552) + (8_224 + 27_776) + (2_064 + 6_976) + 34),
        # The same with a third axis: 27 weights of a kernel for 9, 8 for 4.
        (
            "unet-3d",
            InputSpec((1, 8, 16, 16), 2, "masks"),
            (27 * (16 + 16 * 16) + 64)
            + (27 * (16 * 32 + 32 * 32) + 128)
            + (27 * (32 * 64 + 64 * 64) + 256)
            + (8 * 64 * 32 + 32 + 27 * (64 * 32 + 32 * 32) + 128)
            + (8 * 32 * 16 + 16 + 27 * (32 * 16 + 16 * 16) + 64)
            + 34,
        ),
        ("linear", InputSpec((60,), 10), 60 * 10 + 10),
        # Reddi et al. 2021's 820,522, for 90 characters, and PyTorch's second bias of each of 4 * 512 gates.
        ("char-lstm", InputSpec((80,), 90, "characters"), 820_522 + 4 * 512),
        ("char-lstm-small", TEXT, 97 * 8 + 4 * 128 * (8 + 128 + 2) + (128 + 1) * 97),
    ],
)
def test_number_of_parameters(name, spec, parameters):
    assert sum(p.numel() for p in build_model(name, spec, False, 0).parameters()) == parameters


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in (*RECURRENT, "unet", "unet-3d")])
@pytest.mark.parametrize("spec", [MNIST, CIFAR, DIGITS])
def test_every_model_adapts_to_the_image(name, spec):
    if name.startswith("simple-cnn") and spec == DIGITS:
        with pytest.raises(UserError, match="expected images of at least 16x16 pixels, not 8x8"):
            build_model(name, spec, False, 0)
        return
    images = torch.zeros(2, spec.channels, spec.height, spec.width)
    assert build_model(name, spec, False, 0)(images).shape == (2, 10)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (13, 18), (5, 4), (1, 7)])
def test_a_unet_classifies_every_pixel_of_any_image(height, width):
    model = build_model("unet", InputSpec((3, height, width), 4, "masks"), False, 0)
    assert model(torch.zeros(2, 3, height, width)).shape == (2, 4, height, width)
    with pytest.raises(UserError, match="expected images or volumes with channels, not 8 with masks of 2"):
        build_model("unet", InputSpec((8,), 2, "masks"), False, 0)


@pytest.mark.parametrize("sizes", [(8, 16, 16), (5, 13, 18), (1, 4, 7)])
@pytest.mark.parametrize("name", ["unet", "unet-3d"])
def test_a_unet_classifies_every_voxel_of_any_volume(name, sizes):
    model = build_model(name, InputSpec((2, *sizes), 3, "masks"), False, 0)
    assert model(torch.zeros(2, 2, *sizes)).shape == (2, 3, *sizes)


def test_a_unet_of_volumes_needs_volumes():
    with pytest.raises(UserError, match="expected volumes with channels, not 1x16x16"):
        build_model("unet-3d", MASKS, False, 0)


def test_a_unet_of_a_volume_of_equal_slices_is_that_of_a_slice():
    """With 3-D kernels that are zero but in the middle slice, a volume's slices are segmented one by one."""
    flat = build_model("unet", InputSpec((1, 16, 16), 2, "masks"), False, 0)
    deep = build_model("unet", InputSpec((1, 4, 16, 16), 2, "masks"), False, 0)
    entries = {}
    for (name, wanted), (_, value) in zip(deep.state_dict().items(), flat.state_dict().items(), strict=True):
        if wanted.dim() != 5:
            entries[name] = value
        elif wanted.shape[2] == 3:
            entries[name] = torch.zeros_like(wanted)
            entries[name][:, :, 1] = value
        else:
            entries[name] = value.unsqueeze(2).expand_as(wanted)
    deep.load_state_dict(entries)
    image = torch.randn(1, 1, 16, 16)
    with torch.no_grad():
        masks = deep.eval()(image.unsqueeze(2).expand(1, 1, 4, 16, 16))
        torch.testing.assert_close(masks[:, :, 2], flat.eval()(image), rtol=1e-4, atol=1e-5)


def test_a_unet_sees_what_is_near_and_passes_on_what_is_fine():
    """One pixel moves the output there most, and none that is far away."""
    model = build_model("unet", InputSpec((1, 96, 96), 2, "masks"), False, 0).eval()
    image = torch.zeros(1, 1, 96, 96)
    with torch.no_grad():
        before = model(image)
        image[0, 0, 48, 48] = 1
        change = (model(image) - before).abs().sum((0, 1))
    assert np.unravel_index(change.argmax().item(), change.shape) in {
        (i, j) for i in (47, 48, 49) for j in (47, 48, 49)
    }
    rows = torch.nonzero(change.sum(1)).flatten()
    assert 4 < len(rows) < 60


@pytest.mark.parametrize("name", RECURRENT)
def test_a_character_depends_on_those_before_it_and_on_no_other_text(name):
    model = build_model(name, TEXT, False, 0).eval()
    first, other = torch.randint(97, (2, 80), generator=torch.Generator().manual_seed(0))
    joined = torch.cat([first[:50], other[50:]])
    with torch.no_grad():
        alone, changed = model(first[None])[0], model(joined[None])[0]
        _, among = model(torch.stack([other, first]))
    assert alone.shape == (80, 97)
    torch.testing.assert_close(alone, among)
    torch.testing.assert_close(alone[:50], changed[:50])
    assert not torch.isclose(alone[50:], changed[50:]).all(1).any()


def test_the_softmax_can_be_inside():
    model = build_model("mlp-bn", DIGITS, True, 0).eval()
    torch.testing.assert_close(model(torch.rand(3, 1, 8, 8)).sum(1), torch.ones(3))
    model = build_model("char-lstm-small", TEXT, True, 0)
    torch.testing.assert_close(model(TEXT.zeros(2)).sum(2), torch.ones(2, 80))


def lazy(spec):
    return nn.Sequential(
        nn.Flatten(), nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.Dropout(), nn.LazyLinear(spec.classes)
    )


def test_lazy_modules_get_the_images_shape_and_weights_of_the_seed(monkeypatch):
    monkeypatch.setitem(MODELS, "lazy", lazy)
    torch.manual_seed(1)
    first = build_model("lazy", DIGITS, False, 0)
    torch.manual_seed(2)
    second, other = build_model("lazy", DIGITS, False, 0), build_model("lazy", DIGITS, False, 1)
    assert [type(m) for m in first] == [nn.Flatten, nn.Linear, nn.BatchNorm1d, nn.Dropout, nn.Linear]
    assert first[1].weight.shape == (5, 64)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first[1].weight, other[1].weight)
    assert first[2].running_mean.tolist() == [0] * 5
    assert first[2].num_batches_tracked == 0
    assert first.training


class UsesHalf(nn.Sequential):
    def forward(self, x):
        return self[0](x.flatten(1))


LAZY_MISTAKES = {
    "unused": (
        lambda spec: UsesHalf(nn.LazyLinear(10), nn.LazyLinear(10)),
        "its forward does not use: 1.weight, 1.bias",
    ),
    "unfit": (
        lambda spec: nn.Sequential(nn.LazyConv3d(2, 9)),
        "model: 'unfit' does not fit inputs of 1x8x8 in 10 classes: ",
    ),
}


@pytest.mark.parametrize("name", LAZY_MISTAKES)
def test_lazy_modules_without_a_shape_are_one_line(monkeypatch, name):
    make, output = LAZY_MISTAKES[name]
    monkeypatch.setitem(MODELS, name, make)
    with pytest.raises(UserError, match=output) as caught:
        build_model(name, DIGITS, False, 0)
    assert "\n" not in str(caught.value)

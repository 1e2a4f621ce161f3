"""What replaces BatchNorm, in any model: by formula, what is kept of it, and what is refused."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from clients import FedBNClient, SiloBNClient
from clients.modules.batch_norm import batch_norm_layers
from fedbn_flower.api.result import load_model
from fedbn_flower.core.errors import UserError
from fedbn_flower.job.initial_model import build_model
from fedbn_flower.job.normalisation import Normalisation, layers_of_single_values
from fedbn_flower.models import InputSpec
from fedbn_flower.models.layers import standardised

from ..refusal import one_line

IMAGES, MASKS, VOLUMES = (
    InputSpec((1, 32, 32), 3),
    InputSpec((1, 16, 16), 2, "masks"),
    InputSpec((1, 8, 8, 8), 3),
)
GAMMA = math.sqrt(2 / (1 - 1 / math.pi))


def replaced(model, norm):
    return Normalisation(norm).applied(model)


def built(name, spec, norm="keep"):
    return build_model(name, spec, False, 0, Normalisation(norm))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (nn.BatchNorm1d, (5, 4)),
        (nn.BatchNorm1d, (5, 4, 3)),
        (nn.BatchNorm2d, (5, 4, 3, 2)),
        (nn.BatchNorm3d, (2, 4, 3, 2, 2)),
    ],
)
@pytest.mark.parametrize(("norm", "size"), [("group:2", 2), ("layer", 4), ("instance", 1)])
def test_each_example_is_normalised_by_itself(make, shape, norm, size):
    """By hand: over ``size`` channels and all positions of one example; then weight and bias by channel."""
    x, weight, bias = (np.random.default_rng(i).normal(size=n) for i, n in enumerate((shape, 4, 4)))
    layer = make(4)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    expected = np.empty(shape)
    for example in range(shape[0]):
        for first in range(0, 4, size):
            part = x[example, first : first + size]
            expected[example, first : first + size] = (part - part.mean()) / np.sqrt(part.var() + 1e-5)
    channels = (1, 4, *[1] * (len(shape) - 2))
    expected = expected * weight.reshape(channels) + bias.reshape(channels)
    model = replaced(nn.Sequential(layer), norm).double()
    for mode in (True, False):
        found = model.train(mode)(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("norm", ["none", "scaled-ws"])
def test_without_normalisation_the_scale_and_the_shift_are_left(norm):
    layer = nn.BatchNorm2d(2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([2.0, 3.0]))
        layer.bias.copy_(torch.tensor([1.0, -1.0]))
    model = replaced(nn.Sequential(nn.Conv2d(2, 2, 1), layer, nn.Flatten(), nn.Linear(8, 1)), norm)
    x = torch.arange(8.0).reshape(1, 2, 2, 2)
    expected = torch.stack([2 * x[:, 0] + 1, 3 * x[:, 1] - 1], 1)
    assert torch.equal(model[1](x), expected)
    assert type(replaced(nn.Sequential(nn.BatchNorm1d(2, affine=False)), "none")[0]) is nn.Identity


def test_standardised_weights_by_formula():
    w = np.random.default_rng(0).normal(3, 2, size=(2, 3, 2, 2))
    found = standardised(torch.from_numpy(w)).numpy()
    for i in range(2):
        row = w[i].ravel()
        by_hand = GAMMA * (row - row.mean()) / (row.std() * math.sqrt(12))
        np.testing.assert_allclose(found[i].ravel(), by_hand, rtol=1e-12)
        assert (found[i] ** 2).sum() == pytest.approx(GAMMA**2)  # the variance of what comes out


def test_standardised_layers_agree_with_those_of_timm():
    """An implementation that is not ours, with its gain at 1 and the same constant."""
    timm = pytest.importorskip("timm.layers", reason="needs timm, of the extra networks")
    theirs = timm.ScaledStdConv2d(3, 4, 3, padding=1, gamma=GAMMA, eps=1e-12)
    ours = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(4 * 36, 2))
    ours[0].load_state_dict({"weight": theirs.weight.detach(), "bias": theirs.bias.detach()})
    ours = replaced(ours, "scaled-ws")
    x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours[0](x), theirs(x), rtol=1e-4, atol=1e-5)
    assert type(ours[2]) is nn.Linear  # the head


OURS = {
    "mlp-bn": InputSpec((1, 8, 8), 10), "cnn-bn": InputSpec((3, 28, 28), 10), "simple-cnn-bn": IMAGES,
    "resnet20": IMAGES, "unet": MASKS, "unet-3d": InputSpec((1, 8, 8, 8), 2, "masks"),
}  # fmt: skip
OTHERS = {
    "torchvision:resnet18": IMAGES, "torchvision:mobilenet_v3_small": IMAGES, "torchvision:r3d_18": VOLUMES,
    "timm:resnet18": IMAGES, "timm:efficientnet_b0": IMAGES,
    "monai:UNet:channels=4/8,strides=2/,norm=batch": MASKS,
}  # fmt: skip
FIRST = next(iter(OTHERS))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "norm"),
    [  # of the large networks, a norm each; quickly ours and one network
        pytest.param(
            name, norm, marks=[further] if (i + j) % 2 or name in {*OTHERS, "cnn-bn"} - {FIRST} else []
        )
        for i, name in enumerate([*OURS, *OTHERS])
        for j, norm in enumerate(("group:2", "layer", "none", "scaled-ws"))
        for further in [pytest.mark.exhaustive if (i + j) % 4 else pytest.mark.slow]
    ],
)
def test_of_any_model_all_else_is_as_it_was(name, norm):
    if name.partition(":")[0] in ("timm", "monai"):
        pytest.importorskip(name.partition(":")[0], reason="of the extra networks")
    if name == "monai:UNet:channels=4/8,strides=2/,norm=batch" and norm == "scaled-ws":
        pytest.skip("its head is a transposed convolution, before which there is one convolution")
    spec = {**OURS, **OTHERS}[name]
    before, after = built(name, spec), built(name, spec, norm)
    layers = batch_norm_layers(before)
    assert layers
    assert not batch_norm_layers(after)
    assert FedBNClient.local_entries(after) == SiloBNClient.local_entries(after) == frozenset()
    one, other = before.state_dict(), after.state_dict()
    gone = {
        f"{layer}.{entry}"
        for layer in layers
        for entry in ("running_mean", "running_var", "num_batches_tracked")
    }
    assert list(other) == [entry for entry in one if entry not in gone]
    assert all(torch.equal(entry, one[key]) for key, entry in other.items())
    output = after.train()(torch.rand(2, *spec.shape))
    assert output.isfinite().all()
    assert output.shape == before.train()(torch.rand(2, *spec.shape)).shape


def test_an_activation_inside_a_layer_of_timm_stays():
    timm = pytest.importorskip("timm.layers", reason="needs timm, of the extra networks")
    model = replaced(nn.Sequential(timm.BatchNormAct2d(2, act_layer=nn.ReLU)), "none")
    assert torch.equal(model(torch.tensor([[[[-1.0]], [[2.0]]]])).flatten(), torch.tensor([0.0, 2.0]))


def test_pretrained_values_and_what_is_frozen_are_kept():
    from torchvision.models import resnet18  # late: seconds

    source = resnet18()
    for i, p in enumerate(source.parameters()):
        nn.init.constant_(p, i)
    source.bn1.weight.requires_grad_(False)
    values = {name: entry.clone() for name, entry in source.state_dict().items()}
    model = replaced(source, "group:4")
    assert torch.equal(model.bn1.weight, values["bn1.weight"])
    assert torch.equal(model.layer2[0].downsample[1].bias, values["layer2.0.downsample.1.bias"])
    assert not model.bn1.weight.requires_grad
    assert model.bn1.bias.requires_grad


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = self.second = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.second(self.first(x))


def test_a_layer_under_two_names_is_one_layer_still_and_a_lone_one_is_replaced():
    model = replaced(Twice(), "layer")
    assert type(model.first) is nn.GroupNorm
    assert model.first is model.second
    assert type(replaced(nn.BatchNorm2d(4), "layer")) is nn.GroupNorm


def test_instance_norm_with_statistics_is_replaced_and_without_is_not():
    kept = nn.InstanceNorm2d(4)
    model = replaced(nn.Sequential(nn.InstanceNorm2d(4, track_running_stats=True), kept), "group:2")
    assert type(model[0]) is nn.GroupNorm
    assert model[1] is kept


class Louder(nn.BatchNorm1d):
    def forward(self, x):
        return 2 * super().forward(x)


class LouderConv(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    layer = nn.BatchNorm1d(4)
    layer.register_forward_hook(lambda *_: None)
    return layer


@pytest.mark.parametrize(
    ("model", "norm", "words"),
    [
        (lambda: nn.BatchNorm1d(6), "group:4", "of 6 channels it is one of 1, 2, 3, 6 (layer '0')"),
        (lambda: Louder(4), "layer", "the layer '0' is a Louder, whose forward is its own"),
        (hooked, "layer", "'keep' with this model, of which the layer '0' has a hook"),
        (lambda: LouderConv(4, 4, 1), "scaled-ws", "the layer '0' is a LouderConv, whose forward is its own"),
        (lambda: nn.Conv2d(4, 4, 1, groups=4), "scaled-ws", "in the layer '0' an output has one weight only"),
        (nn.Flatten, "scaled-ws", "the model has no convolution or linear layer before its head"),
    ],
)  # fmt: skip
def test_what_cannot_be_replaced_is_one_line(model, norm, words):
    with one_line(f"norm: {norm!r} is not allowed; expected ", words):
        replaced(nn.Sequential(model(), nn.Linear(4, 2)), norm)


@pytest.mark.parametrize(
    "value", ["group", "group:0", "group:-2", "group:2.5", "group:x", "layer:2", "grup:2", ""]
)
def test_a_norm_that_there_is_not_is_refused_before_anything_starts(configured, value):
    with pytest.raises(UserError, match=r"^norm: "):
        configured(norm=value)


def test_a_group_of_one_value_is_refused(run):
    line = r"^norm: 'instance' is not allowed; expected another one with model 'mlp-bn': the layer '2' has "
    with pytest.raises(UserError, match=line):
        run(norm="instance")
    with pytest.raises(UserError, match=r"^norm: 'group:128' is not allowed"):
        run(norm="group:128")


def test_groups_of_several_values_are_not_told():
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.GroupNorm(4, 4))
    with layers_of_single_values(model) as found:
        model(torch.zeros(2, 4, 1, 1))
    assert found == ["2"]
    assert not any(layer._forward_pre_hooks for layer in model)


def test_hybrid_layers_keep_everything_of_batch_norm():
    """Statistics too; only the factor is new. At first it normalises by the mean of both kinds."""
    before, after = built("resnet20", IMAGES), built("resnet20", IMAGES, "hybrid")
    one, other = before.state_dict(), after.state_dict()
    new = {name for name in other if name.endswith("factor")}
    assert other.keys() - new == one.keys()
    assert len(new) == len(batch_norm_layers(after)) == len(batch_norm_layers(before))
    x = torch.rand(4, *IMAGES.shape)
    torch.testing.assert_close(after.eval()(x), before.eval()(x))
    assert new <= FedBNClient.local_entries(after)
    assert not new & SiloBNClient.local_entries(after)
    instance = nn.InstanceNorm2d(3, track_running_stats=True)
    assert replaced(nn.Sequential(instance), "hybrid")[0] is instance


def test_one_of_ones_own(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nfrom fedbn_flower.models.norms import Norm\n\n\n"
        "class Root(Norm):\n    def instead(self, layer):\n        return nn.RMSNorm(layer.num_features)\n"
    )
    result = run(norm="mine.py:Root", client="shared")
    assert type(result.model()[2]) is nn.RMSNorm


def test_code_that_a_folder_names_is_not_run_unasked(run, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from fedbn_flower.models.norms import Layer\n\n\nclass Mine(Layer):\n    pass\n"
    )
    run(norm="mine.py:Mine", client="shared", run_dir="saved")
    with pytest.raises(
        UserError, match=r"^norm: .*mine.py:Mine' is code that .* names, which is not run unasked"
    ):
        load_model(tmp_path / "saved")
    assert type(load_model(tmp_path / "saved", trust_code=True)[2]) is nn.GroupNorm

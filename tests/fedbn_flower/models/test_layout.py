"""Pictures channels last: which networks take them so, and that nothing else changes."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from clients.modules.rng import seeded
from fedbn_flower.job.initial_model import build_model, initial_model
from fedbn_flower.models import InputSpec
from fedbn_flower.models.channels_last import channels_last, lay_out

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN")

SPEC = InputSpec((3, 8, 8), 10)
CONVOLUTIONAL = ("cnn", "cnn-bn", "resnet20", "simple-cnn-gn")


def takes_it(model, spec=SPEC):
    lay_out(model, spec)
    hooks = list(model._forward_pre_hooks.values())
    assert hooks in ([], [channels_last])
    return bool(hooks)


class Network(nn.Module):
    """Two convolutions, each pooled, and a linear layer."""

    def __init__(self, first=None, between=None):
        super().__init__()
        self.conv1 = first or nn.Conv2d(3, 6, 3, padding=1)
        self.between = between or nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1)
        self.output = nn.Linear(24, 10)

    def features(self, x):
        x = self.pool(self.between(self.conv1(x)))
        return self.pool(functional.relu(self.conv2(x)))

    def forward(self, x):
        return self.output(torch.flatten(self.features(x), 1))


class Viewed(Network):
    def forward(self, x):
        x = self.features(x)
        return self.output(x.view(len(x), -1))


class ViewedInEvaluation(Network):
    def forward(self, x):
        x = self.features(x)
        return self.output(x.flatten(1) if self.training else x.view(len(x), -1))


class ReadsMemory(Network):
    """Raises nothing: it takes values where they would be."""

    def forward(self, x):
        x = self.features(x)
        return self.output(torch.as_strided(x, (len(x), 24), (24, 1)))


class OtherOutput(Network):
    """By a constant, in training or in evaluation: the gradient is the same."""

    def __init__(self, in_training):
        super().__init__()
        self.in_training = in_training

    def forward(self, x):
        differs = self.training == self.in_training and not x.is_contiguous()
        return super().forward(x) + differs


class OtherGradient(Network):
    """The same outputs, and half the gradient of all that comes before."""

    def forward(self, x):
        factor = 1.0 if x.is_contiguous() else 0.5
        x = self.features(x)
        if x.requires_grad:
            x.register_hook(lambda gradient: gradient * factor)
        return self.output(x.flatten(1))


class DropsPixels(Network):
    """The masks are drawn in the order of memory: other ones than before."""

    def forward(self, x):
        x = self.features(x)
        if self.training:
            x = x * (torch.rand(x.numel()).as_strided(x.shape, x.stride()) < 0.5)
        return self.output(x.flatten(1))


class GivesPictures(Network):
    def forward(self, x):
        return self.features(x)


class Broken(Network):
    def forward(self, x):
        raise RuntimeError("whatever it is")


def float64():
    class Double(Network):
        def forward(self, x):
            return super().forward(x.double())

    return Double().double()


LEFT_ALONE = {
    "a view of pictures": Viewed,
    "a view in evaluation only": ViewedInEvaluation,
    "one that reads memory": ReadsMemory,
    "another output in training": lambda: OtherOutput(in_training=True),
    "another output in evaluation": lambda: OtherOutput(in_training=False),
    "another gradient": OtherGradient,
    "dropout of pixels": DropsPixels,
    "pictures as output": GivesPictures,
    "one that raises": Broken,
    "float64": float64,
    "InstanceNorm": lambda: Network(between=nn.InstanceNorm2d(6)),
    "a layer of its own": lambda: Network(between=type("Own", (nn.ReLU,), {})()),
    "padding by reflection": lambda: Network(nn.Conv2d(3, 6, 3, padding=1, padding_mode="reflect")),
    "dilation": lambda: Network(nn.Conv2d(3, 6, 3, padding=2, dilation=2)),
    "one convolution": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10)
    ),
    "pictures that stay as large": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 10)
    ),
    "no convolution": lambda: build_model("mlp-bn", SPEC, False, 0),
}


@pytest.mark.parametrize("make", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_does_not_gain_or_would_differ_is_left_as_it_is(make):
    with seeded(0):
        assert not takes_it(make())


def test_those_that_are_left_alone_differ_from_this_one_in_one_thing_each():
    with seeded(0):
        assert takes_it(Network())


def test_rows_and_texts_are_no_pictures():
    with seeded(0):
        rows = nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 4, 3, 2),
            nn.Conv2d(4, 4, 3),
            nn.Flatten(),
            nn.Linear(4, 2),
        )
        signals = nn.Sequential(nn.Conv1d(3, 4, 3), nn.Conv1d(4, 4, 3, 2), nn.Flatten(), nn.Linear(8, 10))
    assert not takes_it(rows, InputSpec((64,), 10))
    assert not takes_it(signals, InputSpec((3, 8), 10))
    assert not takes_it(build_model("char-lstm-small", InputSpec((8,), 9, "characters"), False, 0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_the_layout_reaches_the_last_convolution(name, channels):
    spec = InputSpec((channels, 16, 16), 10)
    model = initial_model(name, spec, False, 1).module
    last = [module for module in model.modules() if isinstance(module, nn.Conv2d)][-1]
    found = []
    handle = last.register_forward_hook(lambda module, inputs, output: found.extend([inputs[0], output]))
    model(torch.rand(5, *spec.shape))
    handle.remove()
    assert [x.is_contiguous(memory_format=torch.channels_last) for x in found] == [True, True]
    assert not any(x.is_contiguous() for x in found)


def step(model, inputs, targets):
    """Outputs in training and evaluation around a step of SGD, and the gradients."""
    with seeded(0):
        output = model.train()(inputs)
        functional.cross_entropy(output, targets).backward()
        gradients = [p.grad for p in model.parameters()]
        torch.optim.SGD(model.parameters(), 0.1).step()
        with torch.no_grad():
            return output.detach(), model.eval()(inputs), gradients


@pytest.mark.parametrize("name", ["cnn", "resnet20"])
def test_a_step_is_the_same_to_rounding_and_what_it_leaves_is_in_c_order(name):
    model = build_model(name, SPEC, False, 0)
    laid_out = copy.deepcopy(model)
    assert takes_it(laid_out)
    rng = torch.Generator().manual_seed(0)
    inputs, targets = torch.rand(6, 3, 8, 8, generator=rng), torch.arange(6)
    expected, found = step(model, inputs, targets), step(laid_out, inputs, targets)
    for ours, theirs in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(found[2], expected[2], strict=True):
        assert (ours - theirs).norm() <= 1e-3 * theirs.norm()
        assert ours.is_contiguous()
    assert list(laid_out.state_dict()) == list(model.state_dict())
    assert all(entry.is_contiguous() for entry in laid_out.state_dict().values())


def test_frozen_tied_and_hooked_networks_take_it_and_stay_what_they_are():
    seen = []
    with seeded(0):
        model = Network(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)))
    model.conv2.weight = model.conv1[1].weight
    model.conv1[0].weight.requires_grad = False
    model.conv1[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    model.output.weight.register_hook(seen.append)
    assert takes_it(model)
    assert model.conv2.weight is model.conv1[1].weight
    assert not model.conv1[0].weight.requires_grad
    assert not seen
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    assert len(seen) == 1


def test_the_trial_leaves_no_trace():
    model = build_model("cnn-bn", SPEC, False, 0).eval()
    before = {name: entry.clone() for name, entry in model.state_dict().items()}
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert takes_it(model)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.rand(3), expected)
    assert not model.training
    for name, entry in model.state_dict().items():
        assert torch.equal(entry, before[name])
    assert all(p.grad is None for p in model.parameters())


def test_on_another_device_networks_are_left_as_they_are():
    assert initial_model("cnn", SPEC, False, 2).module._forward_pre_hooks
    found = initial_model("cnn", SPEC, False, 2, "meta")
    assert not found.module._forward_pre_hooks
    assert all(isinstance(entry, np.ndarray) and entry.flags.c_contiguous for entry in found.entries.values())


@pytest.mark.parametrize("name", ["cnn", "simple-cnn"])
def test_examples_one_by_one_are_those_of_the_batch(name):
    """DP-SGD maps over examples, where no memory format is known."""
    spec = InputSpec((3, 16, 16), 10)
    model = build_model(name, spec, False, 0)
    assert takes_it(model, spec)
    images = torch.rand(3, *spec.shape, generator=torch.Generator().manual_seed(0))
    found = torch.func.vmap(lambda one: model(one.unsqueeze(0)).squeeze(0))(images)
    torch.testing.assert_close(found, model(images))

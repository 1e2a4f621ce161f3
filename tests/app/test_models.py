"""The networks: their published sizes, and what they return."""

import pytest
import torch

from fedbn_flower.models import MODELS, InputSpec, build_model

MNIST, CIFAR, DIGITS = InputSpec(1, 28, 28, 10), InputSpec(3, 32, 32, 10), InputSpec(1, 8, 8, 10)


@pytest.mark.parametrize(
    ("name", "spec", "parameters"),
    [
        ("2nn", MNIST, 199_210),  # McMahan et al. 2017, section 3
        ("cnn", MNIST, 1_663_370),  # the same
        ("mlp-bn", MNIST, 784 * 128 + 128 + 2 * 128 + 128 * 10 + 10),
        ("resnet20", CIFAR, 269_722),  # He et al. 2016, table 6: 0.27M
        ("cnn-bn", InputSpec(3, 28, 28, 10), 14_219_210),
    ],
)
def test_number_of_parameters(name, spec, parameters):
    assert sum(p.numel() for p in build_model(name, spec, False, 0).parameters()) == parameters


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("spec", [MNIST, CIFAR, DIGITS])
def test_every_model_adapts_to_the_image(name, spec):
    images = torch.zeros(2, spec.channels, spec.height, spec.width)
    assert build_model(name, spec, False, 0)(images).shape == (2, 10)


def test_the_softmax_can_be_inside():
    model = build_model("mlp-bn", DIGITS, True, 0).eval()
    torch.testing.assert_close(model(torch.rand(3, 1, 8, 8)).sum(1), torch.ones(3))


def test_the_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = build_model("2nn", DIGITS, False, 0)
    torch.manual_seed(2)
    second, other = build_model("2nn", DIGITS, False, 0), build_model("2nn", DIGITS, False, 1)
    assert torch.equal(first[1].weight, second[1].weight)
    assert not torch.equal(first[1].weight, other[1].weight)

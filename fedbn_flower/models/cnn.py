"""Plain convolutional networks."""

from __future__ import annotations

from collections.abc import Callable

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec
from ..core.papers import paper


@paper("mcmahan2017fedavg")
def cnn(spec: InputSpec) -> nn.Module:
    """McMahan et al.'s CNN: two 5x5 convolutions (32, 64), each max-pooled, 512 units (1,663,370)."""
    return nn.Sequential(
        nn.Conv2d(spec.channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (spec.height // 4) * (spec.width // 4), 512),
        nn.ReLU(),
        nn.Linear(512, spec.outputs),
    )


@paper("li2022niidbench")
def simple_cnn(spec: InputSpec) -> nn.Module:
    """NIID-Bench's simple CNN (Li et al. 2022): two 5x5 convolutions (6, 16), 120 and 84 units (62,006)."""
    return _simple_cnn(spec, lambda channels: [])


@paper("li2022niidbench")
def simple_cnn_bn(spec: InputSpec) -> nn.Module:
    """The simple CNN of NIID-Bench (Li et al. 2022) with BatchNorm after each convolution."""
    return _simple_cnn(spec, lambda channels: [nn.BatchNorm2d(channels)])


@paper("li2022niidbench")
def simple_cnn_gn(spec: InputSpec) -> nn.Module:
    """The simple CNN of NIID-Bench (Li et al. 2022) with GroupNorm, of two groups, after each convolution."""
    return _simple_cnn(spec, lambda channels: [nn.GroupNorm(2, channels)])


def _simple_cnn(spec: InputSpec, norm: Callable[[int], list[nn.Module]]) -> nn.Module:
    height, width = (((side - 4) // 2 - 4) // 2 for side in (spec.height, spec.width))
    if min(height, width) < 1:
        raise ValueError(f"expected images of at least 16x16 pixels, not {spec.height}x{spec.width}")
    return nn.Sequential(
        nn.Conv2d(spec.channels, 6, 5),
        *norm(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        *norm(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, spec.outputs),
    )


@paper("li2021fedbn")
def cnn_bn(spec: InputSpec) -> nn.Module:
    """The digit CNN of FedBN (Li et al. 2021, appendix): BatchNorm after every layer but the last."""

    def convolution(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU()]

    def dense(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]

    return nn.Sequential(
        *convolution(spec.channels, 64),
        nn.MaxPool2d(2),
        *convolution(64, 64),
        nn.MaxPool2d(2),
        *convolution(64, 128),
        nn.Flatten(),
        *dense(128 * (spec.height // 4) * (spec.width // 4), 2048),
        *dense(2048, 512),
        nn.Linear(512, spec.outputs),
    )

"""The networks, each a function of an `InputSpec`; none imports PyTorch before it is called."""

from __future__ import annotations

from collections.abc import Callable

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec
from ..core.methods import paper


def linear(spec: InputSpec) -> nn.Module:
    """One layer: softmax regression of classes, linear regression of numbers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(spec.size, spec.outputs))


def mlp_bn(spec: InputSpec) -> nn.Module:
    """784-128-BN-ReLU-10 on 28x28 images; the first width follows the image size."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(spec.size, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Linear(128, spec.outputs),
    )


@paper("mcmahan2017fedavg")
def two_nn(spec: InputSpec) -> nn.Module:
    """McMahan et al.'s 2NN: two hidden layers of 200 units (199,210 parameters on MNIST)."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(spec.size, 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, spec.outputs),
    )


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


@paper("he2016resnet")
def resnet20(spec: InputSpec) -> nn.Module:
    """ResNet-20 for small images (He et al. 2016, section 4.2; 269,722 parameters on CIFAR-10)."""
    from .layers import ResidualBlock  # imports PyTorch

    widths = [16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [ResidualBlock(i, o) for i, o in zip([16, *widths], widths, strict=False)]
    return nn.Sequential(
        nn.Conv2d(spec.channels, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, spec.outputs),
    )


@paper("ronneberger2015unet")
def unet(spec: InputSpec) -> nn.Module:
    """A small U-Net (Ronneberger et al. 2015): 16, 32 and 64 channels on three levels, with BatchNorm."""
    from .layers import UNet  # imports PyTorch

    axes = len(spec.shape) - 1
    if axes not in (2, 3):
        raise ValueError(f"expected images or volumes with channels, not {spec}")
    return UNet(spec.shape[0], spec.outputs, axes)


@paper("cicek2016unet3d")
def unet_3d(spec: InputSpec) -> nn.Module:
    """The same with 3-D layers and BatchNorm3d (Cicek et al. 2016); of volumes, ``unet`` is this one."""
    if len(spec.shape) != 4:
        raise ValueError(f"expected volumes with channels, not {spec}")
    return unet(spec)


@paper("mcmahan2017fedavg")
def char_lstm(spec: InputSpec) -> nn.Module:
    """McMahan et al.'s character LSTM: embedding 8, two layers of 256 units (824,425 for 97 characters).

    PyTorch's LSTM has two biases per gate, which adds 2,048 parameters.
    """
    return _char_lstm(spec, layers=2, units=256)


def char_lstm_small(spec: InputSpec) -> nn.Module:
    """A character LSTM with one layer of 128 units: a tenth of the work of char-lstm (83,945 parameters)."""
    return _char_lstm(spec, layers=1, units=128)


def _char_lstm(spec: InputSpec, layers: int, units: int) -> nn.Module:
    from .layers import CharLSTM  # imports PyTorch

    if spec.predicts != "characters":
        raise ValueError(f"expected text, not {spec}")
    return CharLSTM(spec.outputs, layers, units)

"""Modules that networks and norms are made of; they import PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

GAMMA = math.sqrt(2 / (1 - 1 / math.pi))
"""Inverse deviation of a ReLU of N(0, 1): with it, activations keep their variance."""
LEAST = 1e-4
"""Lower bound on sigma^2 N, as in the code of Brock et al. 2021."""


class Affine(nn.Module):
    """``weight x + bias`` for each channel: what BatchNorm is without normalising.

    Parameters
    ----------
    channels : int
        C, of inputs (b, C, ...).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.dim() - 2))
        return x * self.weight.view(shape) + self.bias.view(shape)


def standardised(weight: Tensor) -> Tensor:
    """Return ``gamma (W - mu) / (sigma sqrt(N))``, mu and sigma over the N weights of each output (row)."""
    each = weight.flatten(1)
    variance, mean = torch.var_mean(each, dim=1, correction=0, keepdim=True)
    scale = GAMMA * torch.rsqrt((variance * each.shape[1]).clamp(min=LEAST))
    return ((each - mean) * scale).view_as(weight)


class StandardisedConv1d(nn.Conv1d):
    """`nn.Conv1d` with standardised weights."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._conv_forward(x, standardised(self.weight), self.bias)
        return y


class StandardisedConv2d(nn.Conv2d):
    """`nn.Conv2d` with standardised weights."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._conv_forward(x, standardised(self.weight), self.bias)
        return y


class StandardisedConv3d(nn.Conv3d):
    """`nn.Conv3d` with standardised weights."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._conv_forward(x, standardised(self.weight), self.bias)
        return y


class StandardisedLinear(nn.Linear):
    """`nn.Linear` with standardised weights."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, standardised(self.weight), self.bias)


STANDARDISED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: StandardisedConv1d,
    nn.Conv2d: StandardisedConv2d,
    nn.Conv3d: StandardisedConv3d,
    nn.Linear: StandardisedLinear,
}
"""Each layer with weights -> the same with standardised ones."""


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm; the shortcut subsamples and pads with zeros (option A)."""

    lockstep_safe = True

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = outputs // inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        padding = (y.shape[1] - x.shape[1]) // 2
        return functional.relu(y + functional.pad(shortcut, (0, 0, 0, 0, padding, padding)))


WIDTHS = (16, 32, 64)
SIDE = 2 ** (len(WIDTHS) - 1)
LAYERS: dict[int, tuple[Any, Any, Any, Any]] = {
    2: (nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.ConvTranspose2d),
    3: (nn.Conv3d, nn.BatchNorm3d, nn.MaxPool3d, nn.ConvTranspose3d),
}
"""Convolution, BatchNorm, pooling and transposed convolution, by the number of axes."""


def block(inputs: int, outputs: int, axes: int = 2) -> nn.Sequential:
    """Return two convolutions of 3 pixels along each axis, each with BatchNorm and ReLU."""
    convolution, batch_norm, *_ = LAYERS[axes]
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [convolution(channels, outputs, 3, padding=1, bias=False), batch_norm(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A U-Net of three levels, (b, channels, height, width) to (b, outputs, height, width).

    With three ``axes`` it is of volumes (b, channels, depth, height, width), as Cicek et al. 2016 (arXiv
    1606.06650) make it: every layer has a third axis.

    Ronneberger et al. 2015 (arXiv 1505.04597) with a quarter of their width, three of their five levels,
    BatchNorm, and padded convolutions: the output is as large as the input. Sides that are not divisible by 4
    are padded with zeros, and the output is cropped.
    """

    def __init__(self, channels: int, outputs: int, axes: int = 2) -> None:
        super().__init__()
        convolution, _, pool, upwards = LAYERS[axes]
        downwards = zip((channels, *WIDTHS), WIDTHS, strict=False)
        self.down = nn.ModuleList(block(i, o, axes) for i, o in downwards)
        self.pool = pool(2)
        levels = list(zip(WIDTHS[:0:-1], WIDTHS[-2::-1], strict=True))
        self.up = nn.ModuleList(upwards(i, o, 2, stride=2) for i, o in levels)
        self.join = nn.ModuleList(block(2 * o, o, axes) for _, o in levels)
        self.classify = convolution(WIDTHS[0], outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        sizes = x.shape[2:]
        x = functional.pad(x, [pad for size in reversed(sizes) for pad in (0, -size % SIDE)])
        skipped: list[Tensor] = []
        for level, encode in enumerate(self.down):
            x = encode(self.pool(x) if level else x)
            skipped.append(x)
        skipped.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skipped.pop(), up(x)], 1))
        output: Tensor = self.classify(x)
        for axis, size in enumerate(sizes, 2):
            output = output.narrow(axis, 0, size)
        return output


EMBEDDING = 8


class CharLSTM(nn.Module):
    """Map character numbers (b, length) to scores (b, length, characters).

    An embedding, LSTM layers, and a linear layer applied at every position.
    """

    def __init__(self, characters: int, layers: int, units: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, EMBEDDING)
        self.lstm = nn.LSTM(EMBEDDING, units, layers, batch_first=True)
        self.output = nn.Linear(units, characters)

    def forward(self, characters: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(characters))
        scores: Tensor = self.output(states)
        return scores


class OnlyOut(nn.Module):
    """Give the masks of a segmentation network of torchvision, which returns them in a dictionary."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        masks: Tensor = self.network(images)["out"]
        return masks

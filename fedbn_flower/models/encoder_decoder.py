"""The network of `unet.unet`."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

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

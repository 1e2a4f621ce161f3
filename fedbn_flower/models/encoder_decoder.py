"""The network of `unet.unet`."""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTHS = (16, 32, 64)
SIDE = 2 ** (len(WIDTHS) - 1)


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Return two 3x3 convolutions, each with BatchNorm and ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A U-Net of three levels, (b, channels, height, width) to (b, outputs, height, width).

    Ronneberger et al. 2015 (arXiv 1505.04597) with a quarter of their width, three of their five levels,
    BatchNorm, and padded convolutions: the output is as large as the input. Sides that are not divisible by 4
    are padded with zeros, and the output is cropped.
    """

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(block(i, o) for i, o in zip((channels, *WIDTHS), WIDTHS, strict=False))
        self.pool = nn.MaxPool2d(2)
        upwards = list(zip(WIDTHS[:0:-1], WIDTHS[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in upwards)
        self.join = nn.ModuleList(block(2 * o, o) for _, o in upwards)
        self.classify = nn.Conv2d(WIDTHS[0], outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        x = functional.pad(x, (0, -width % SIDE, 0, -height % SIDE))
        skipped: list[Tensor] = []
        for level, encode in enumerate(self.down):
            x = encode(self.pool(x) if level else x)
            skipped.append(x)
        skipped.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skipped.pop(), up(x)], 1))
        output: Tensor = self.classify(x)
        return output[:, :, :height, :width]

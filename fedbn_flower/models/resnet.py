"""Residual networks for small images."""

from torch import Tensor, nn
from torch.nn import functional

from ..core.input_spec import InputSpec
from ..core.papers import paper


class _ResidualBlock(nn.Module):
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


@paper("he2016resnet")
def resnet20(spec: InputSpec) -> nn.Module:
    """ResNet-20 for small images (He et al. 2016, section 4.2; 269,722 parameters on CIFAR-10)."""
    widths = [16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [_ResidualBlock(i, o) for i, o in zip([16, *widths], widths, strict=False)]
    return nn.Sequential(
        nn.Conv2d(spec.channels, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, spec.outputs),
    )

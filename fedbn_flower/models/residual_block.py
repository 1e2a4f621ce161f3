"""The block of a residual network."""

from torch import Tensor, nn
from torch.nn import functional


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

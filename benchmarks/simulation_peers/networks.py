"""Networks that the project does not have, as ``FILE.py:NAME``."""

from torch import nn
from torchvision.models import resnet18

from fedbn_flower.models import InputSpec


def cifar_resnet18_gn(spec: InputSpec) -> nn.Module:
    """The same with GroupNorm of two channels a group in the place of BatchNorm."""
    network = resnet18(
        num_classes=spec.outputs, norm_layer=lambda channels: nn.GroupNorm(channels // 2, channels)
    )
    network.conv1 = nn.Conv2d(spec.channels, 64, 3, padding=1, bias=False)
    network.maxpool = nn.Identity()
    return network


def cifar_resnet18(spec: InputSpec) -> nn.Module:
    """ResNet-18 for CIFAR's images: the first convolution is 3x3 of stride 1, with no pooling after it."""
    network = resnet18(num_classes=spec.outputs)
    network.conv1 = nn.Conv2d(spec.channels, 64, 3, padding=1, bias=False)
    network.maxpool = nn.Identity()
    return network

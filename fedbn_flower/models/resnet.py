"""Residual networks for small images."""

from __future__ import annotations

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec
from ..core.papers import paper


@paper("he2016resnet")
def resnet20(spec: InputSpec) -> nn.Module:
    """ResNet-20 for small images (He et al. 2016, section 4.2; 269,722 parameters on CIFAR-10)."""
    from .residual_block import ResidualBlock  # imports PyTorch

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

"""A U-Net for the segmentation of images."""

from __future__ import annotations

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec
from ..core.papers import paper


@paper("ronneberger2015unet")
def unet(spec: InputSpec) -> nn.Module:
    """A small U-Net (Ronneberger et al. 2015): 16, 32 and 64 channels on three levels, with BatchNorm."""
    from .encoder_decoder import UNet  # imports PyTorch

    if len(spec.shape) != 3:
        raise ValueError(f"expected images with channels, not {spec}; volumes need another model")
    return UNet(spec.channels, spec.outputs)

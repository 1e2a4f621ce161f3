"""U-Nets for the segmentation of images and of volumes."""

from __future__ import annotations

from fedbn_flower.clients.modules.lazy_torch import nn

from ..core.input_spec import InputSpec
from ..core.papers import paper


@paper("ronneberger2015unet")
def unet(spec: InputSpec) -> nn.Module:
    """A small U-Net (Ronneberger et al. 2015): 16, 32 and 64 channels on three levels, with BatchNorm."""
    from .encoder_decoder import UNet  # imports PyTorch

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

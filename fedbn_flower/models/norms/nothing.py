"""No normalisation."""

from __future__ import annotations

from fedbn_flower.clients.modules.batch_norm import BatchNorm
from fedbn_flower.clients.modules.lazy_torch import nn

from .base import Norm


class Nothing(Norm):
    """No normalisation: what is left of a layer is its weight and bias for each channel."""

    helps = ("baseline",)

    def instead(self, layer: BatchNorm) -> nn.Module:
        from ..layers import Affine  # imports PyTorch

        return Affine(layer.num_features) if layer.affine else nn.Identity()

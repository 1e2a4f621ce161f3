"""Hybrid BatchNorm: Chen et al. 2025 (arXiv 2505.21877)."""

from __future__ import annotations

from fedbn_flower.clients.modules.batch_norm import BatchNorm, pools
from fedbn_flower.clients.modules.lazy_torch import nn

from .base import Norm


class Hybrid(Norm):
    """BatchNorm that trains on a learnt mix of running and batch statistics, which client ``hbn`` takes."""

    helps = ("label-skew",)
    paper = "chen2025hybrid"

    def instead(self, layer: BatchNorm) -> nn.Module:
        from fedbn_flower.clients.modules.hybrid_norm import HybridBatchNorm  # imports PyTorch

        if not pools(layer):
            return layer
        return HybridBatchNorm(layer.num_features, layer.eps, layer.momentum, layer.affine)

"""BatchNorm as the model has it."""

from __future__ import annotations

from fedbn_flower.clients.modules.batch_norm import BatchNorm
from fedbn_flower.clients.modules.lazy_torch import nn

from .base import Norm


class Keep(Norm):
    """The model as it is, with the BatchNorm layers that it has."""

    helps = ("baseline",)

    def instead(self, layer: BatchNorm) -> nn.Module:
        return layer

"""A client that shares nothing of its model."""

from __future__ import annotations

from ..base import FedAvgClient
from ..modules.lazy_torch import nn


class AloneClient(FedAvgClient):
    """Keeps the whole model at home. Only further records are sent, such as FedProto's prototypes."""

    helps = ("baseline",)

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return frozenset(model.state_dict())

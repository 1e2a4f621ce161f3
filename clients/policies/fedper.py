"""FedPer: Arivazhagan et al. 2019, "Federated Learning with Personalization Layers"."""

from __future__ import annotations

from collections.abc import Iterable

from ..base import FedAvgClient
from ..modules.head import head_entries
from ..modules.lazy_torch import nn


class FedPerClient(FedAvgClient):
    """Keeps the head at home, trained together with the body (arXiv 1912.00818, algorithms 1 and 2)."""

    purpose = "Keeps the head at home, trained together with the body."
    helps = ("personal-models", "label-skew")
    paper = "arivazhagan2019fedper"

    decides = "the head"

    @staticmethod
    def local_entries(model: nn.Module) -> Iterable[str]:
        return head_entries(model)

"""LG-FedAvg: Liang et al. 2020, "Think Locally, Act Globally"."""

from __future__ import annotations

from ..base import FedAvgClient
from ..modules.head import head_entries
from ..modules.lazy_torch import nn


class LGFedAvgClient(FedAvgClient):
    """Keeps the body at home and shares the head, trained together (arXiv 2001.01523): FedPer turned round.

    BatchNorm of the body stays at home with it.
    """

    purpose = "Keeps the body at home and shares the head: FedPer turned round."
    helps = ("personal-models",)
    paper = "liang2020lgfedavg"

    decides = "the body"

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return frozenset(model.state_dict()) - head_entries(model)

"""FedBN: Li et al. 2021, "Federated Learning on Non-IID Features via Local Batch Normalization"."""

from __future__ import annotations

from ..base import FedAvgClient
from ..modules.batch_norm import batch_norm_entries
from ..modules.lazy_torch import nn


class FedBNClient(FedAvgClient):
    """Keeps every BatchNorm entry at home and shares everything else (arXiv 2102.07623, Algorithm 1)."""

    purpose = "Keeps every BatchNorm entry at home and shares everything else."
    helps = ("feature-shift", "personal-models")
    paper = "li2021fedbn"

    decides = "BatchNorm"

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return batch_norm_entries(model)

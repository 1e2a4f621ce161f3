"""SiloBN: Andreux et al. 2020, "Siloed Federated Learning for Multi-Centric Histopathology Datasets"."""

from __future__ import annotations

from ..base import FedAvgClient
from ..modules.batch_norm import batch_norm_statistics
from ..modules.lazy_torch import nn


class SiloBNClient(FedAvgClient):
    """Keeps the BatchNorm statistics at home and shares everything else (arXiv 2008.07424, section 3)."""

    purpose = "Keeps the BatchNorm statistics at home and shares everything else."
    helps = ("feature-shift", "personal-models")
    paper = "andreux2020siloed"

    decides = "BatchNorm"

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return batch_norm_statistics(model)

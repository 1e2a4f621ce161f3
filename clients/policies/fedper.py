"""FedPer: Arivazhagan et al. 2019, "Federated Learning with Personalization Layers"."""

from torch import nn

from ..base import FedAvgClient
from ..modules.head import head_entries


class FedPerClient(FedAvgClient):
    """Keeps the head at home, trained together with the body (arXiv 1912.00818, algorithms 1 and 2)."""

    paper = "arivazhagan2019fedper"

    decides = "the head"

    @staticmethod
    def local_entries(model: nn.Module) -> frozenset[str]:
        return head_entries(model)

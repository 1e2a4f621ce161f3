"""FixBN: Zhong et al. 2023, "Making Batch Normalization Great in Federated Deep Learning"."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..base import FedAvgClient
from ..modules.batch_norm import batch_norm_modules, pools


class FixBNClient(FedAvgClient):
    """Shares everything; from a round on, BatchNorm statistics are fixed and normalise in training too.

    arXiv 2303.06530. In the first stage it is FedAvg. In the second, training and evaluation use
    the same statistics, those of all clients, while weight and bias go on. The momentum that the paper keeps
    at the server besides is that of the strategy, such as ``fedavgm``.
    """

    purpose = "One shared model; in its last rounds BatchNorm trains with the shared statistics."
    helps = ("label-skew",)
    paper = "zhong2023fixbn"

    decides = "BatchNorm"

    fix_from: int = setting(
        0,
        ge=0,
        description="round from which on statistics are fixed; 0 for the second half of the rounds",
    )
    rounds: int = setting(10, ge=1, description="number of rounds")

    def still_in(self, server_round: int) -> frozenset[str]:
        if server_round < (self.fix_from or self.rounds // 2 + 1):
            return self.still
        return self.still.union(name for name, layer in batch_norm_modules(self.task.model) if pools(layer))

"""Federated BatchNorm: Guerraoui et al. 2024, "Overcoming the Challenges of Batch Normalization in FL"."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.common import Scalar

from fedbn_flower.core.ground.settings import setting

from ..modules.batch_norm import batch_norm_modules, pools
from ..modules.lazy_torch import torch
from ..modules.moments import measured
from ..training import LocalRun
from .pooling import PoolingClient


class FBNClient(PoolingClient):
    """Normalises everywhere by shared running statistics, which follow all clients' (arXiv 2405.14670).

    Clients train with the statistics that they received, and gather those of their batches. The server's move
    by ``fbn-momentum`` towards the mean and the variance of all of these, which has in it what lies between
    the clients. Gradients take the statistics as constants. By default a round's replace them: of steps that
    each count for 0.1, as in BatchNorm, a round of twenty leaves an eighth of what was before.
    """

    purpose = (
        "One shared model; BatchNorm normalises by the running statistics of all clients, also in training."
    )
    helps = ("feature-shift", "label-skew")
    paper = "guerraoui2024fbn"
    pooled_by = "fbn-momentum"
    also_decides = frozenset({"how many passes a step has"})

    fbn_momentum: float = setting(
        1.0, gt=0, le=1, description="share of a round's statistics in the shared running ones"
    )

    def still_in(self, server_round: int) -> frozenset[str]:
        return self.still.union(name for name, layer in batch_norm_modules(self.task.model) if pools(layer))

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        # Passes without gradient are of other models, such as MOON's previous one.
        with measured(self.task.model, counts=torch.is_grad_enabled) as moments:
            metrics = super().train(run, config)
        self.gathered = moments()
        return metrics

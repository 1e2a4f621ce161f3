"""FedInit: Sun et al. 2023, "... via Stage-wise Relaxed Initialization" (arXiv 2306.05706)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from flwr.common import Scalar

from fedbn_flower.core.ground.settings import setting

from ..base import FedAvgClient
from ..modules.arrays import to_array
from ..modules.lazy_torch import torch
from ..training import LocalRun

LAST = "fedinit"


class FedInitClient(FedAvgClient):
    """Begins a round at ``x + beta (x - w_i)``, w_i what the client trained last (arXiv 2306.05706).

    Only shared, trained parameters are moved; BatchNorm statistics begin as received. A client that has not
    trained yet begins at x. It evaluates x.
    """

    purpose = "Begins each round a step beyond the shared model, away from what it trained last."
    helps = ("label-skew",)
    paper = "sun2023fedinit"

    decides = "where a round begins"
    remembers = True
    requires: ClassVar = {"objective": {"plain", "fedprox", "fedsam"}}

    relaxation: float = setting(
        0.1, ge=0, alias="init-beta", description="beta, how far beyond the shared model a round begins"
    )

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        parameters = run.objective.parameters
        last = self.memory.read(LAST) or {}
        for name, p in parameters.items():
            if name in last:
                x = p.detach()
                x.add_(x - torch.from_numpy(last[name]).to(x), alpha=self.relaxation)
        metrics = super().train(run, config)
        self.memory.write(LAST, {name: to_array(p) for name, p in parameters.items()})
        return metrics

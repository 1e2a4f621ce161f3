"""pFedMe: Dinh et al. 2020, "Personalized Federated Learning with Moreau Envelopes"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from flwr.common import Scalar
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import LOCAL_STEPS

from ..around import Around
from ..base import FedAvgClient
from ..modules.lazy_torch import nn, torch
from ..training import LocalRun


class PFedMeClient(FedAvgClient):
    """Keeps a model t near the shared one, and moves the shared one towards it (2006.08848).

    Of each batch, K steps of ``f(t) + lambda/2 ||t - w||^2`` move t, then ``w -= lr lambda (w - t)``. Each
    round begins with t and w at the received model. The client evaluates t. The paper's server,
    ``x = (1 - beta) x + beta mean``, is strategy ``fedavg`` with ``server-lr`` beta. Steps of t by
    ``pfedme-lr`` and of w by ``client-lr`` diverge where the rate times lambda is 2 or more. The authors'
    code has a weight decay of 0.001 besides, and 0.09 for ``pfedme-lr`` unless told.
    """

    purpose = "Shares one model, and keeps a personal one within a distance that it weighs."
    helps = ("personal-models",)
    paper = "dinh2020pfedme"

    decides = "a personal model"
    also_decides = frozenset({"what a round trains", "how many passes a step has"})
    remembers = True
    personal_group = "pfedme"
    requires: ClassVar = {"objective": {"plain"}}

    weight: float = setting(
        15.0, gt=0, alias="pfedme-lambda", description="lambda, weight of the distance to the shared model"
    )
    steps: int = setting(
        5, ge=1, alias="pfedme-steps", description="K, steps of the personal model for each batch"
    )
    rate: float = setting(0.01, gt=0, alias="pfedme-lr", description="learning rate of the personal model")

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        envelope = _Envelope(run, self)
        given = {one.name: getattr(run, one.name) for one in fields(LocalRun)}
        changed = {"objective": envelope, "learning_rate": self.rate}
        metrics = super().train(_Repeated(**given | changed, times=self.steps), config)
        envelope.move()
        entries = self.task.model.state_dict()
        self.remember({name: entry for name, entry in entries.items() if name not in self.constant_names})
        for name, p in self.task.model.named_parameters():
            if name in envelope.w:
                p.detach().copy_(envelope.w[name])
        return {**metrics, LOCAL_STEPS: max(1, int(metrics[LOCAL_STEPS]) // self.steps)}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Repeated(LocalRun):
    """A run of several steps on each batch."""

    times: int

    def epochs(self, rng: np.random.Generator) -> Iterator[list[NDArray[np.int64]]]:
        for batches in super().epochs(rng):
            yield [batch for batch in batches for _ in range(self.times)]


class _Envelope(Around):
    """The steps of t, and w, which moves after every K of them."""

    def __init__(self, run: LocalRun, client: PFedMeClient) -> None:
        super().__init__(run.objective)
        self.weight, self.times, self.rate = client.weight, client.steps, run.learning_rate
        self.w = {name: t.detach().clone() for name, t in self.parameters.items()}
        self.done = 0

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.done and self.done % self.times == 0:
            self.move()
        self.done += 1
        return super().loss(model, inputs, targets, reduction)

    def correct_gradients(self) -> None:
        for name, t, gradient in self.gradients():
            gradient.add_(t - self.w[name], alpha=self.weight)

    def move(self) -> None:
        """Move w towards t."""
        for name, t in self.parameters.items():
            self.w[name].sub_(self.w[name] - t.detach(), alpha=self.rate * self.weight)

"""FedRep: Collins et al. 2021, "Exploiting Shared Representations for Personalized Federated Learning"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flwr.common import Scalar

from fedbn_flower.core.ground.settings import setting

from ..modules.frozen import untrained
from ..modules.head import head_entries, head_of
from ..objectives.plain import Plain
from ..training import LocalRun, train_model
from .fedper import FedPerClient

SEED = 1  # appended to the seed of the round, for the head's training


class FedRepClient(FedPerClient):
    """Keeps the head at home and trains it first, then the body (arXiv 2102.07078, algorithm 1).

    The part that is not being trained is frozen and in evaluation mode. The objective's terms, which concern
    shared parameters, apply only to the training of the body.
    """

    purpose = "Keeps the head at home and trains it first, then the body."
    helps = ("personal-models", "label-skew")
    paper = "collins2021fedrep"

    also_decides = frozenset({"what a round trains"})

    head_epochs: int = setting(10, ge=1, description="passes over the client's examples to train the head")

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        model, entries = self.task.model, head_entries(self.task.model)
        inside = set(head_of(model)[1].modules())
        outside = set(model.modules()) - inside
        head_run = self.with_objective(Plain).begin_run(dict(model.named_parameters()), config, {})
        training = replace(run.training, epochs=self.head_epochs)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        head = [p for name, p in trained.items() if name in entries]
        body = [p for name, p in trained.items() if name not in entries]
        metrics: dict[str, float] = {}
        if head:
            with untrained(body):
                head_run = replace(head_run, training=training, seed=(*run.seed, SEED))
                metrics = train_model(model, head_run, outside)
        if body:
            with untrained(head):
                metrics = train_model(model, run, inside)
        return metrics

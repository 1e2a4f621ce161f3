"""FedPAC: Xu et al. 2023, features aligned to prototypes (arXiv 2306.11867)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from fedbn_flower.core.ground.wire import CLASS_MEANS, FEATURES, SPREAD

from ..modules.head import frozen
from ..modules.lazy_torch import functional, torch
from .base import LocalWork, Outcome
from .fedproto import BATCH, FedProto


class FedPAC(FedProto):
    """FedProto's loss; besides, the client sends by how much its features and classes differ from others'.

    These are M, the mean features of each class times the class's share of the examples, and V, the variance
    of features around M over the number of examples, both of the model that it received, before training.
    """

    purpose = "Pulls features to the mean features of all clients (with strategy fedpac)."
    helps = ("personal-models", "label-skew")
    paper = "xu2023fedpac"

    requires: ClassVar = {"strategy": {"fedpac"}}

    def begin(self) -> None:
        super().begin()
        model, examples = self.client.model, self.client.examples
        passes = [frozen(model, None, inputs) for inputs, _ in examples.load(examples.batches(BATCH))]
        z, classes = torch.cat([z for z, _ in passes]).double(), passes[0][1].shape[1]
        labels = functional.one_hot(examples.targets, classes).double()
        means = labels.T @ z / len(z)
        spread = ((z**2).sum() / len(z) - (means**2).sum()).clamp(min=0) / len(z)
        self.features = {CLASS_MEANS: means.float(), SPREAD: spread.float()}

    def finish(self, work: LocalWork) -> Outcome:
        outcome = super().finish(work)
        features = {name: x.numpy(force=True) for name, x in self.features.items()}
        return replace(outcome, records={**outcome.records, FEATURES: features})

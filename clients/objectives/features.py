"""Objectives on the features, which are the inputs of a model's head.

MOON: Li et al. 2021, "Model-Contrastive Federated Learning" (arXiv 2103.16257).
FedDecorr: Shi et al. 2023, "Towards Understanding and Mitigating Dimensional Collapse".
FedProto: Tan et al. 2022, "FedProto: Federated Prototype Learning" (arXiv 2105.00243).
FedPAC: Xu et al. 2023, features aligned to prototypes (arXiv 2306.11867).
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import (
    CLASS_MEANS,
    FEATURE_SUMS,
    FEATURES,
    KNOWN,
    PROTOTYPES,
    SHARES,
    SPREAD,
)

from ..modules.arrays import to_array
from ..modules.head import features, frozen
from ..modules.lazy_torch import functional, nn, torch
from .base import LocalWork, Objective, Outcome


class Moon(Objective):
    """``f - mu log(e^{sim(z, z_x)/T} / (e^{sim(z, z_x)/T} + e^{sim(z, z_prev)/T}))`` (equation 3).

    z is the input of the head, z_x that of the received model. z_prev is that of this client's model at the
    end of its last round, with local entries; what was frozen then is that of the received model. Both models
    are in evaluation mode, so their statistics do not change. For a client without a previous model the term
    is left out: with the received model in its place, it would be constant.
    """

    purpose = "Keeps features near those of the global model: label skew in images."
    helps = ("label-skew",)
    paper = "li2021moon"

    mu: float = setting(1.0, ge=0, description="weight of the contrastive term", allow_inf_nan=False)
    temperature: float = setting(
        0.5, gt=0, alias="moon-temperature", description="T of the contrastive term", allow_inf_nan=False
    )

    of_features = True
    remembers = True
    example_wise = True

    def begin(self) -> None:
        self.x = self.client.entries()
        self.previous: dict[str, torch.Tensor] | None = None
        if self.memory is not None:
            previous = {name: torch.from_numpy(entry) for name, entry in self.memory.items()}
            self.previous = {n: previous[n].to(x) if n in previous else x for n, x in self.x.items()}

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        z, output = features(model, inputs)
        loss = self.criterion(output, targets, reduction)
        if self.previous is None:
            return loss, output
        frozen_z = [frozen(model, entries, inputs)[0] for entries in (self.x, self.previous)]
        similarities = torch.stack([functional.cosine_similarity(z, other) for other in frozen_z], 1)
        first = torch.zeros(len(z), dtype=torch.long, device=z.device)
        contrast = functional.cross_entropy(similarities / self.temperature, first, reduction=reduction)
        return loss + self.mu * contrast, output

    def finish(self, work: LocalWork) -> Outcome:
        entries = self.client.entries()
        return Outcome(memory={name: to_array(entry) for name, entry in entries.items()})


EPSILON = 1e-8  # added to the variance, as in the authors' code: a feature may be constant in a batch


class FedDecorr(Objective):
    """``f + beta/d^2 ||K||_F^2``, K the correlation matrix of a batch's d features (arXiv 2210.00226).

    The features are the input of the head. A batch of one example has no correlations and adds nothing.
    """

    purpose = "Keeps features from collapsing to few directions: strong label skew."
    helps = ("label-skew",)
    paper = "shi2023feddecorr"

    beta: float = setting(
        0.1, ge=0, alias="decorr-beta", description="weight of the correlations", allow_inf_nan=False
    )

    of_features = True

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        z, output = features(model, inputs)
        loss = self.criterion(output, targets, reduction)
        return (loss + self.beta * mean_squared_correlation(z) if len(z) > 1 else loss), output


def mean_squared_correlation(z: torch.Tensor) -> torch.Tensor:
    """Return ``||K||_F^2 / d^2`` of features (b, d).

    ``torch.corrcoef`` would be NaN where a feature is constant. ``Z^T Z`` and ``Z Z^T`` have one norm, so the
    smaller one is computed.
    """
    count, width = z.shape
    variance, mean = torch.var_mean(z, 0, correction=0)
    normal = (z - mean) / (variance + EPSILON).sqrt()
    products = normal @ normal.T if count < width else normal.T @ normal
    return (products / count).square().sum() / width**2


BATCH = 1000


class FedProto(Objective):
    """``f + lambda MSE(z, prototype of its class)`` (equation 7), where z is the input of the head.

    Examples of a class without a prototype add nothing. After training, the sums of the model's features by
    class and the classes' shares are sent to the server. They are computed in evaluation mode.
    """

    purpose = "Pulls features to the mean features of all clients (with strategy fedproto)."
    helps = ("personal-models", "label-skew")
    paper = "tan2022fedproto"

    weight: float = setting(
        1.0,
        ge=0,
        alias="proto-lambda",
        description="weight of the distance to prototypes",
        allow_inf_nan=False,
    )

    requires: ClassVar = {"strategy": {"fedproto"}}
    of_classes = True
    of_features = True

    def begin(self) -> None:
        arrays = self.received.get(PROTOTYPES)
        device = next(self.client.model.parameters()).device
        self.prototypes = torch.from_numpy(arrays[PROTOTYPES]).to(device) if arrays else None
        self.known = torch.from_numpy(arrays[KNOWN] > 0).to(device) if arrays else None

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        z, output = features(model, inputs)
        loss = self.criterion(output, targets, reduction)
        if self.prototypes is None or self.known is None:
            return loss, output
        anchors = torch.where(self.known[targets].unsqueeze(1), self.prototypes[targets], z.detach())
        each = functional.mse_loss(z, anchors, reduction="none").mean(1)
        return loss + self.weight * (each.mean() if reduction == "mean" else each), output

    def finish(self, work: LocalWork) -> Outcome:
        z, labels = self._features()
        parts = {FEATURE_SUMS: labels.T @ z, SHARES: labels.sum(0)}
        records = {name: (x / len(z)).float().numpy(force=True) for name, x in parts.items()}
        return Outcome(records={PROTOTYPES: records})

    def _features(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features (N, d) and one-hot classes of all the client's examples, float64."""
        model, examples = self.client.model, self.client.examples
        passes = [frozen(model, None, inputs) for inputs, _ in examples.load(examples.batches(BATCH))]
        labels = functional.one_hot(examples.targets, passes[0][1].shape[1]).double()
        return torch.cat([z for z, _ in passes]).double(), labels


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
        z, labels = self._features()
        means = labels.T @ z / len(z)
        spread = ((z**2).sum() / len(z) - (means**2).sum()).clamp(min=0) / len(z)
        self.features = {CLASS_MEANS: means.float(), SPREAD: spread.float()}

    def finish(self, work: LocalWork) -> Outcome:
        outcome = super().finish(work)
        features = {name: x.numpy(force=True) for name, x in self.features.items()}
        return replace(outcome, records={**outcome.records, FEATURES: features})

"""FedProto: Tan et al. 2022, "FedProto: Federated Prototype Learning" (arXiv 2105.00243)."""

from __future__ import annotations

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import FEATURE_SUMS, KNOWN, PROTOTYPES, SHARES

from ..modules.head import features, frozen
from ..modules.lazy_torch import functional, nn, torch
from .base import LocalWork, Objective, Outcome

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
        model, examples = self.client.model, self.client.examples
        found = [frozen(model, None, inputs) for inputs, _ in examples.load(examples.batches(BATCH))]
        classes = found[0][1].shape[1]
        labels = functional.one_hot(examples.targets, classes).double()
        sums = labels.T @ torch.cat([z for z, _ in found]).double()
        parts = {FEATURE_SUMS: sums, SHARES: labels.sum(0)}
        records = {name: (x / len(examples)).float().numpy(force=True) for name, x in parts.items()}
        return Outcome(records={PROTOTYPES: records})

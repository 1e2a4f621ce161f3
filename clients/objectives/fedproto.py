"""FedProto: Tan et al. 2022, "FedProto: Federated Prototype Learning" (arXiv 2105.00243)."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..heads import features, frozen
from ..settings import setting
from .base import LocalWork, Objective, Outcome

PROTOTYPES = "prototypes"
"""The record in which prototypes come, and in which the sums of features go."""
BATCH = 1000


class FedProto(Objective):
    """``f + lambda MSE(z, prototype of its class)`` (equation 7), z being what goes into the head.

    Examples of a class that has no prototype yet add nothing. Afterwards the sums of the trained model's
    features by class and the classes' shares go to the server; they are made in evaluation mode.
    """

    weight: float = setting(
        1.0,
        ge=0,
        alias="proto-lambda",
        description="weight of the distance to prototypes",
        allow_inf_nan=False,
    )

    requires: ClassVar = {"strategy": {"fedproto"}}
    of_classes = True

    def begin(self) -> None:
        arrays = self.received.get(PROTOTYPES)
        device = next(self.client.model.parameters()).device
        self.prototypes = torch.from_numpy(arrays["prototypes"]).to(device) if arrays else None
        self.known = torch.from_numpy(arrays["known"] > 0).to(device) if arrays else None

    def loss(
        self, model: nn.Module, inputs: Tensor, targets: Tensor, reduction: str = "mean"
    ) -> tuple[Tensor, Tensor]:
        z, output = features(model, inputs)
        loss = self.criterion(output, targets, reduction)
        if self.prototypes is None or self.known is None:
            return loss, output
        wanted = torch.where(self.known[targets].unsqueeze(1), self.prototypes[targets], z.detach())
        each = functional.mse_loss(z, wanted, reduction="none").mean(1)
        return loss + self.weight * (each.mean() if reduction == "mean" else each), output

    def finish(self, work: LocalWork) -> Outcome:
        model, examples = self.client.model, self.client.examples
        sums = counts = None
        for inputs, targets in examples.load(examples.batches(BATCH)):
            z, output = frozen(model, None, inputs)
            if sums is None:
                sums = torch.zeros(output.shape[1], z.shape[1], dtype=torch.float64, device=z.device)
                counts = torch.zeros(output.shape[1], dtype=torch.float64, device=z.device)
            sums.index_add_(0, targets, z.double())
            counts += torch.bincount(targets, minlength=len(counts))
        assert sums is not None
        assert counts is not None
        shares = {"sums": sums / len(examples), "shares": counts / len(examples)}
        return Outcome(
            records={PROTOTYPES: {n: x.numpy(force=True).astype(np.float32) for n, x in shares.items()}}
        )

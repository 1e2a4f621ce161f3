"""FedRS: Li and Zhan 2021, "FedRS: Federated Learning with Restricted Softmax" (KDD)."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..modules.lazy_torch import nn, torch
from .base import Objective


class FedRS(Objective):
    """f of logits scaled class by class: ``s_c z_c`` with ``s_c = (1 - a) q_c / max q + a``.

    q are the classes' shares of the client's examples: a missing class is scaled by a, not masked. Only the
    loss uses scaled logits; the returned output is not scaled.
    """

    purpose = "Spares the classes that a client lacks: for clients with few classes each."
    helps = ("label-skew",)
    paper = "li2021fedrs"

    a: float = setting(0.5, ge=0, le=1, alias="rs-a", description="scale of a class missing at a client")

    of_classes = True

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = model(inputs)
        counts = self.criterion.class_counts(output)
        scale = (1 - self.a) * counts / counts.max() + self.a
        return self.criterion(scale * output, targets, reduction), output

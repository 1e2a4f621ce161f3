"""FedLC: Zhang et al. 2022, "Federated Learning with Label Distribution Skew via Logits Calibration"."""

from __future__ import annotations

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting

from ..modules.lazy_torch import nn, torch
from .base import Objective


class FedLC(Objective):
    """f of calibrated logits: ``z_c - tau n_c^(-1/4)`` (arXiv 2209.00189).

    n_c is the number of the client's training examples of class c. A class that the client lacks has an
    infinite margin: it is left out of the softmax, so nothing pushes its logit down. Only the loss uses
    calibrated logits; the returned output is the model's.

    A loss that wants some probability for every class, such as label smoothing, would be infinite then.
    """

    purpose = "A margin for the classes that a client has few of: label skew."
    helps = ("label-skew",)
    paper = "zhang2022fedlc"

    requires: ClassVar = {"loss": {"auto", "class-balanced", "focal", "logit-adjusted"}}
    of_classes = True

    tau: float = setting(
        1.0, gt=0, alias="lc-tau", description="weight of the margins of classes", allow_inf_nan=False
    )

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = model(inputs)
        margins = self.tau * self.criterion.class_counts(output) ** -0.25
        return self.criterion(output - margins, targets, reduction), output

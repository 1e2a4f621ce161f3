"""FedNTD: Lee et al. 2022, "Preservation of the Global Knowledge by Not-True Distillation" (2106.03097)."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..modules.head import forward_only
from ..modules.lazy_torch import functional, nn, torch
from .base import Objective


class FedNTD(Objective):
    """``f + beta T^2 KL(q_x || q)`` over the classes other than the true one (equations 3 to 5).

    q_x and q are the softmax of the received and of the local model, at temperature T and without the true
    class. The received model is in evaluation mode.
    """

    purpose = "Keeps what the global model knows of classes that a client lacks."
    helps = ("label-skew",)
    paper = "lee2022fedntd"

    beta: float = setting(1.0, ge=0, alias="ntd-beta", description="weight of the distillation")
    temperature: float = setting(1.0, gt=0, alias="ntd-temperature", description="T of the distillation")

    of_classes = True
    example_wise = True

    def begin(self) -> None:
        self.x = self.client.entries()

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = model(inputs)
        teacher, student = (
            functional.log_softmax(not_true(logits, targets) / self.temperature, 1)
            for logits in (forward_only(model, self.x, inputs), output)
        )
        each = functional.kl_div(student, teacher, reduction="none", log_target=True).sum(1)
        distillation = self.beta * self.temperature**2 * (each.mean() if reduction == "mean" else each)
        return self.criterion(output, targets, reduction) + distillation, output


def not_true(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return logits (b, classes) without those of the true classes (b,): (b, classes - 1)."""
    others = torch.arange(logits.shape[1] - 1, device=logits.device).expand(len(logits), -1)
    return logits.gather(1, others + (others >= targets.unsqueeze(1)))

"""FedGKD: Yao et al. 2021, "Local-Global Knowledge Distillation in Heterogeneous FL" (arXiv 2107.00051)."""

from __future__ import annotations

from fedbn_flower.core.ground.settings import setting

from ..modules.arrays import to_array
from ..modules.head import forward_only
from ..modules.lazy_torch import functional, nn, torch
from .base import LocalWork, Objective, Outcome


class FedGKD(Objective):
    """``f + gamma/2 T^2 KL(q_T || q)``, q_T of the mean of the last M models that the client received.

    q and q_T are the softmax of the local model and of the teacher at temperature T. The teacher's entries
    are means of those with which the client began its last M rounds, this one among them; it is in
    evaluation mode. Whole numbers, such as counts of batches, are those of this round.
    """

    purpose = "Keeps what the last global models know, more steadily than one of them: label skew."
    helps = ("label-skew",)
    paper = "yao2021fedgkd"

    gamma: float = setting(0.2, ge=0, alias="gkd-gamma", description="weight of the distillation, times 2")
    models: int = setting(5, ge=1, alias="gkd-models", description="M, how many received models are averaged")
    temperature: float = setting(1.0, gt=0, alias="gkd-temperature", description="T of the distillation")

    of_classes = True
    remembers = True
    example_wise = True

    def begin(self) -> None:
        self.x = self.client.entries()
        past: dict[str, dict[str, torch.Tensor]] = {}
        for key, entry in (self.memory or {}).items():
            age, _, name = key.partition("/")
            past.setdefault(age, {})[name] = torch.from_numpy(entry)
        self.past = [past[age] for age in sorted(past, key=int)][: self.models - 1]
        """The earlier models, the latest first."""
        self.teacher = {name: self._mean(name, x) for name, x in self.x.items()}

    def _mean(self, name: str, x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x
        return torch.stack([x, *(model[name].to(x) for model in self.past if name in model)]).mean(0)

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = model(inputs)
        teacher, student = (
            functional.log_softmax(logits / self.temperature, 1)
            for logits in (forward_only(model, self.teacher, inputs), output)
        )
        each = functional.kl_div(student, teacher, reduction="none", log_target=True).sum(1)
        distillation = self.gamma / 2 * self.temperature**2 * (each.mean() if reduction == "mean" else each)
        return self.criterion(output, targets, reduction) + distillation, output

    def finish(self, work: LocalWork) -> Outcome:
        kept = [self.x, *self.past][: self.models - 1]
        memory = {f"{age}/{name}": to_array(e) for age, model in enumerate(kept) for name, e in model.items()}
        return Outcome(memory=memory or None)

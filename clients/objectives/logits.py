"""Objectives on the scores of classes: calibrated, restricted, distilled, reported to the server.

FedLC: Zhang et al. 2022, "Federated Learning with Label Distribution Skew via Logits Calibration".
FedRS: Li and Zhan 2021, "FedRS: Federated Learning with Restricted Softmax" (KDD).
FedNTD: Lee et al. 2022, "Preservation of the Global Knowledge by Not-True Distillation" (2106.03097).
FedGKD: Yao et al. 2021, "Local-Global Knowledge Distillation in Heterogeneous FL" (arXiv 2107.00051).
FedSat: a client's struggle score of each class.
"""

from __future__ import annotations

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import SCORES, STRUGGLE

from ..modules.arrays import to_array
from ..modules.head import forward_only
from ..modules.lazy_torch import functional, nn, torch
from .base import LocalWork, Objective, Outcome


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
        teacher, student = (not_true(z, targets) for z in (forward_only(model, self.x, inputs), output))
        far = distance(teacher, student, self.temperature, self.beta, reduction)
        return self.criterion(output, targets, reduction) + far, output


def not_true(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return logits (b, classes) without those of the true classes (b,): (b, classes - 1)."""
    others = torch.arange(logits.shape[1] - 1, device=logits.device).expand(len(logits), -1)
    return logits.gather(1, others + (others >= targets.unsqueeze(1)))


def distance(
    teacher: torch.Tensor, student: torch.Tensor, temperature: float, weight: float, reduction: str
) -> torch.Tensor:
    """Return ``weight T^2 KL(teacher || student)`` of the softmax of logits (b, classes) at temperature T."""
    given, own = (functional.log_softmax(logits / temperature, 1) for logits in (teacher, student))
    each = functional.kl_div(own, given, reduction="none", log_target=True).sum(1)
    return weight * temperature**2 * (each.mean() if reduction == "mean" else each)


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
        teacher = forward_only(model, self.teacher, inputs)
        far = distance(teacher, output, self.temperature, self.gamma / 2, reduction)
        return self.criterion(output, targets, reduction) + far, output

    def finish(self, work: LocalWork) -> Outcome:
        kept = [self.x, *self.past][: self.models - 1]
        memory = {f"{age}/{name}": to_array(e) for age, model in enumerate(kept) for name, e in model.items()}
        return Outcome(memory=memory or None)


EPSILON = 1e-6


class FedSat(Objective):
    """f alone, with a running soft confusion ``C <- mu C + (1 - mu)(Y^T P + e)`` of the training batches.

    Y are the batch's one-hot targets, P the softmax of its outputs. N are running counts of the classes,
    updated in the same way. The struggle score ``S_i = sum_{j != i} C_ij / (N_i + e)`` of class i, at most 1,
    is sent to the server. It is 1 for a class that the client has not had. All losses work; only CALC uses C.
    """

    purpose = "Counts which classes a client confuses (with strategy fedsat)."
    helps = ("label-skew",)
    paper = "chowdhury2024fedsat"

    mu: float = setting(0.95, ge=0, lt=1, alias="confusion-mu", description="decay of the running confusion")

    requires: ClassVar = {"strategy": {"fedsat"}}
    of_classes = True
    remembers = True

    def begin(self) -> None:
        device = next(self.client.model.parameters()).device
        memory = {name: torch.from_numpy(array).to(device) for name, array in (self.memory or {}).items()}
        self.confusion, self.counts = memory.get("confusion"), memory.get("counts")

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = model(inputs)
        self._count(output.detach(), targets)
        self.criterion.confusion = self.confusion
        return self.criterion(output, targets, reduction), output

    def _count(self, output: torch.Tensor, targets: torch.Tensor) -> None:
        classes = output.shape[1]
        if self.confusion is None or self.counts is None:
            self.confusion, self.counts = output.new_zeros(classes, classes), output.new_zeros(classes)
        labels = functional.one_hot(targets, classes).to(output)
        self.confusion = self.mu * self.confusion + (1 - self.mu) * (labels.T @ output.softmax(1) + EPSILON)
        self.counts = self.mu * self.counts + (1 - self.mu) * labels.sum(0)

    def finish(self, work: LocalWork) -> Outcome:
        assert self.confusion is not None
        assert self.counts is not None
        wrong = self.confusion.sum(1) - self.confusion.diagonal()
        seen = self.counts > 0
        scores = torch.where(seen, wrong / (self.counts + EPSILON), 1.0).clamp(0, 1)
        return Outcome(
            memory={
                "confusion": self.confusion.numpy(force=True),
                "counts": self.counts.numpy(force=True),
            },
            records={STRUGGLE: {SCORES: scores.numpy(force=True)}},
        )

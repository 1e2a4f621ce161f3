"""FedRoD: Chen and Chao 2022, "On Bridging Generic and Personalized Federated Learning"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flwr.common import Scalar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import CASES, RECALIBRATE

from ..base import FedAvgClient
from ..losses import Loss
from ..memory import Arrays
from ..modules.head import head_entries, head_of
from ..modules.lazy_torch import functional, nn, torch
from ..modules.precision import in_float32
from ..objectives.base import Around
from ..problems import Classification, Problem
from ..training import LocalRun

GENERIC = "generic-"


class FedRoDClient(FedAvgClient):
    """Adds a personal head to the shared, generic one: the sum of both predicts (arXiv 2107.00778).

    Body and generic head learn by balanced softmax, cross-entropy of ``z + gamma log n`` with the counts n of
    the client's classes. The personal head p learns, on detached features, cross-entropy of the sum. The head
    is one linear layer, so the sum is the model whose head is the sum of both. Metrics are the sum's, and as
    ``generic-...`` those of the generic head alone.
    """

    purpose = "Shares one model that treats classes alike, and adds a head that knows the client's."
    helps = ("personal-models", "label-skew")
    paper = "chen2022fedrod"

    decides = "the head"
    also_decides = frozenset({"a personal model"})
    remembers = True
    personal_group = "fedrod"
    requires = {"loss": {"auto"}}  # noqa: RUF012

    gamma: float = setting(1.0, ge=0, alias="rod-gamma", description="exponent of the class counts")

    @classmethod
    def misfit(cls, model: nn.Module, problem: Problem, inputs: torch.Tensor) -> str:
        if not isinstance(problem, Classification):
            return "it balances classes, and there are none to choose from"
        name, head = head_of(model)
        if not isinstance(head, nn.Linear):
            return f"the head {name!r} is no linear layer, so that two of them add up to one"
        if not head.weight.requires_grad:
            return f"the head {name!r} is frozen"
        seen: list[torch.Tensor] = []
        hook = head.register_forward_hook(lambda *call: seen.append(call[2]))
        with torch.no_grad():
            output = model(inputs)
        hook.remove()
        if not seen or not torch.equal(in_float32(seen[-1]), output):
            return "something comes after its head"
        return super().misfit(model, problem, inputs)

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        run.objective.criterion = Balanced(run.objective.problem, run.examples, {"gamma": self.gamma})
        heads = _Heads(run, self)
        metrics = super().train(replace(run, objective=heads), config)
        self.remember(self._by_every_name(heads.personal))
        return metrics

    @staticmethod
    def personal(entries: Arrays, kept: Arrays) -> Arrays:
        return {name: entries[name] + array for name, array in kept.items()}

    def personalise(self) -> bool:
        names = head_entries(self.task.model)
        self.generic = {n: e.clone() for n, e in self.task.model.state_dict().items() if n in names}
        return super().personalise()

    def load_as_new(self, parameters: Any, own_statistics: bool) -> None:
        super().load_as_new(parameters, own_statistics)
        self.generic = {}

    def held_out_metrics(self, config: Mapping[str, Scalar]) -> dict[str, Any]:
        entries = {name: entry.clone() for name, entry in self.task.model.state_dict().items()}
        metrics = super().held_out_metrics(config)
        self.task.model.load_state_dict(entries | self.generic)
        asked = {key: value for key, value in config.items() if key not in (CASES, RECALIBRATE)}
        found = super().held_out_metrics(asked)
        return metrics | {GENERIC + name: value for name, value in found.items() if isinstance(value, float)}


class Balanced(Loss):
    """Cross-entropy of ``z + gamma log n``; a class that the client lacks is left out."""

    gamma: float = setting(1.0, ge=0)

    def __call__(self, output: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return super().__call__(output + self.gamma * self.class_counts(output).log(), targets, reduction)


class _Heads(Around):
    """The steps of the personal head, after each pass of the model."""

    def __init__(self, run: LocalRun, client: FedRoDClient) -> None:
        super().__init__(run.objective)
        model = client.task.model
        prefix, self.head = head_of(model)
        kept = client.memory.read(client.personal_group) or {}
        dot = f"{prefix}." if prefix else ""
        self.personal = {
            f"{dot}{name}": torch.from_numpy(kept[f"{dot}{name}"]).to(p)
            if f"{dot}{name}" in kept
            else torch.zeros_like(p)
            for name, p in self.head.named_parameters()
        }
        self.optimizer = run.training.make_optimizer(
            [p.requires_grad_() for p in self.personal.values()], run.learning_rate
        )

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        seen: list[tuple[torch.Tensor, torch.Tensor]] = []

        def note(_: nn.Module, args: tuple[torch.Tensor], output: torch.Tensor) -> None:
            if torch.is_grad_enabled():  # passes without gradient are of other models
                seen[:] = [(in_float32(args[0].detach()), in_float32(output.detach()))]

        hook = self.head.register_forward_hook(note)
        try:
            found = super().loss(model, inputs, targets, reduction)
        finally:
            hook.remove()
        (z, generic) = seen[0]
        output = generic + functional.linear(z, *self.personal.values())
        gradients = torch.autograd.grad(self.problem.loss(output, targets), list(self.personal.values()))
        for p, gradient in zip(self.personal.values(), gradients, strict=True):
            p.grad = gradient
        self.optimizer.step()
        return found

"""Per-FedAvg: Fallah et al. 2020, "Personalized Federated Learning: A Meta-Learning Approach"."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from flwr.common import Scalar
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import CLIENT_LR

from ..base import FedAvgClient
from ..examples import Examples, Indices
from ..modules.lazy_torch import nn, torch
from ..objectives import Objective
from ..objectives.base import Around, Plain
from ..training import FineTuning, LocalRun, train_model

SEED = 6  # appended to the seed of the round, for the step before an evaluation


class PerFedAvgClient(FedAvgClient):
    """Shares a model that is good after one step on a client's own examples (2002.07948).

    A step is ``w -= lr grad f(w - a grad f(w, D), D')``, in the form ``hf`` less ``a/(2 delta)`` times the
    difference of the gradients at ``w + delta v`` and ``w - delta v``, v the one of before: a Hessian times
    v. D, D' and, in ``hf``, the batch of that difference are different ones. Before it evaluates, a client
    takes one plain step of rate a, and forgets it afterwards. BatchNorm statistics follow the pass at w.
    """

    purpose = "Shares a model from which one step on its own examples brings each client far."
    helps = ("personal-models",)
    paper = "fallah2020perfedavg"

    decides = "a personal model"
    also_decides = frozenset({"what a round trains", "how many passes a step has"})
    requires: ClassVar = {"objective": {"plain"}, "precision": {"fp32", "bf16"}}

    inner_rate: float = setting(
        0.01, gt=0, alias="perfedavg-alpha", description="a, rate of the client's own step"
    )
    form: Literal["fo", "hf"] = setting(
        "fo", alias="perfedavg-form", description="first order (fo), or with Hessian-vector products (hf)"
    )
    delta: float = setting(
        0.001, gt=0, alias="perfedavg-delta", description="step of the Hessian-vector products' differences"
    )

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        meta = _Meta(run.objective, run.examples, self)
        return super().train(run.to(_Divided, objective=meta, meta=meta), config)

    def held_out_metrics(self, config: Mapping[str, Scalar]) -> dict[str, Any]:
        model = self.task.model
        if len(self.task.train):
            plain = self.with_objective(Plain)
            run = plain.begin_run(dict(model.named_parameters()), {**config, CLIENT_LR: self.inner_rate}, {})
            training = replace(run.training, optimizer="sgd", momentum=0.0, weight_decay=0.0)
            train_model(model, FineTuning.like(replace(run, training=training, seed=(*run.seed, SEED)), 1))
        return super().held_out_metrics(config)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Divided(LocalRun):
    """A run with a step for every two or three batches: one is trained on, ``meta`` gets the others."""

    meta: _Meta

    def epochs(self, rng: np.random.Generator) -> Iterator[list[NDArray[np.int64]]]:
        for batches in super().epochs(rng):
            parts = 3 if self.meta.second_order else 2
            groups = [np.concatenate(batches[i : i + parts]) for i in range(0, len(batches), parts)]
            divided = [divide(group, parts) for group in groups]
            self.meta.others.extend((first, *rest) for first, _, *rest in divided)
            yield [outer for _, outer, *_ in divided]


def divide(indices: Indices, parts: int) -> list[Indices]:
    """Divide indices evenly; if that leaves a part with less than two, each part has all of them."""
    return [indices] * parts if len(indices) < 2 * parts else np.array_split(indices, parts)


class _Meta(Around):
    """Gradients of f after a step, at w."""

    def __init__(self, inner: Objective, examples: Examples, client: PerFedAvgClient) -> None:
        super().__init__(inner)
        self.rate, self.delta, self.second_order = client.inner_rate, client.delta, client.form == "hf"
        self.examples = examples
        self.others: deque[tuple[Indices, ...]] = deque()

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        first, *rest = self.examples.load(self.others.popleft(), training=True)
        self.rest, self.model = rest, model
        self.w = {p: p.detach().clone() for p in model.parameters() if p.requires_grad}
        gradients = self._gradients(*first)
        self.buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        for p, gradient in gradients.items():
            p.detach().sub_(gradient, alpha=self.rate)
        return super().loss(model, inputs, targets, reduction)

    def correct_gradients(self) -> None:
        outer = {p: p.grad.clone() for p in self.w if p.grad is not None}
        for batch in self.rest:
            ahead, behind = (self._gradients_from(outer, sign * self.delta, batch) for sign in (1, -1))
            for p in outer.keys() & ahead.keys():
                assert p.grad is not None
                p.grad.sub_(ahead[p] - behind[p], alpha=self.rate / (2 * self.delta))
        for p, w in self.w.items():
            p.detach().copy_(w)
        for buffer, before in self.buffers:
            buffer.copy_(before)
        super().correct_gradients()

    def _gradients_from(
        self,
        direction: Mapping[nn.Parameter, torch.Tensor],
        step: float,
        batch: tuple[torch.Tensor, torch.Tensor],
    ) -> dict[nn.Parameter, torch.Tensor]:
        """Return the gradients at w plus a step in a direction."""
        for p, w in self.w.items():
            p.detach().copy_(w + step * direction[p] if p in direction else w)
        return self._gradients(*batch)

    def _gradients(self, inputs: torch.Tensor, targets: torch.Tensor) -> dict[nn.Parameter, torch.Tensor]:
        loss = self.criterion(self.model(inputs), targets)
        found = torch.autograd.grad(loss, list(self.w), allow_unused=True)
        return {p: g for p, g in zip(self.w, found, strict=True) if g is not None}

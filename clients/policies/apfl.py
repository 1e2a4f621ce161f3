"""APFL: Deng et al. 2020, "Adaptive Personalized Federated Learning"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
from flwr.common import Scalar

from fedbn_flower.core.ground.settings import setting

from ..around import Around
from ..base import FedAvgClient
from ..memory import Arrays
from ..modules.lazy_torch import nn, torch
from ..modules.rng import seeded
from ..training import LocalRun

ALPHA = ".alpha"
SEED = 5  # appended to the seed of the round, for dropout in the mix


class APFLClient(FedAvgClient):
    """Mixes an own model v with the shared one, ``alpha v + (1 - alpha) w``, by a learnt share (2003.13461).

    In each step w moves as without v, v by ``-lr alpha grad f(mix)``, and alpha by
    ``-lr <grad f(mix), v - w>`` within [0, 1], all from the same batch. What is mixed are the shared trained
    parameters. BatchNorm statistics and all that stays at home are the mix's own. The client evaluates the
    mix with the model that it received.
    """

    purpose = "Shares one model, and mixes it with an own one by a share that it learns."
    helps = ("personal-models",)
    paper = "deng2020apfl"

    decides = "a personal model"
    also_decides = frozenset({"what a round trains", "how many passes a step has"})
    remembers = True
    personal_group = "apfl"
    requires: ClassVar = {"precision": {"fp32", "bf16"}, "agc": {0.0}}

    apfl_alpha: float = setting(0.5, ge=0, le=1, description="first share of the own model in the mix")
    apfl_adapt: bool = setting(True, description="whether that share is learnt")

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        mix = _Mix(run, self)
        metrics = super().train(replace(run, objective=mix), config)
        mixed, own = self._by_every_name(mix.mixed), self._by_every_name(mix.own)
        self.remember({ALPHA: mix.alpha, **{f".{name}": v for name, v in mixed.items()}, **own})
        return {**metrics, "apfl-alpha": mix.alpha.item()}

    @staticmethod
    def personal(entries: Arrays, kept: Arrays) -> Arrays:
        alpha = kept[ALPHA]
        return {
            name: alpha * kept[f".{name}"] + (1 - alpha) * entry if f".{name}" in kept else kept[name]
            for name, entry in entries.items()
            if f".{name}" in kept or name in kept
        }


class _Mix(Around):
    """The client's own model in a round: v, what is not mixed, and alpha."""

    def __init__(self, run: LocalRun, client: APFLClient) -> None:
        super().__init__(run.objective)
        model, kept = client.task.model, client.memory.read(client.personal_group) or {}
        local = set(client.local_names)

        def copied(name: str, entry: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(kept[name]).to(entry) if name in kept else entry.detach().clone()

        w = run.objective.parameters
        self.mixed = {name: copied(f".{name}", p).requires_grad_() for name, p in w.items()}
        self.own = {
            name: copied(name, p).requires_grad_()
            for name, p in model.named_parameters()
            if name in local and p.requires_grad
        }
        trained = [*self.mixed.values(), *self.own.values()]
        constant = client.task.constant
        self.own |= {name: copied(name, b) for name, b in model.named_buffers() if name not in constant}
        first = np.array([client.apfl_alpha], np.float32)
        self.alpha = torch.from_numpy(kept.get(ALPHA, first)).to(next(iter(model.parameters())).device)
        self.trained, self.adapts = trained, client.apfl_adapt
        self.rate, self.clip_norm = run.learning_rate, run.training.clip_norm
        self.optimizer = run.training.make_optimizer(trained, run.learning_rate)
        self.rng = np.random.default_rng([*run.seed, SEED])

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with seeded(int(self.rng.integers(2**63))):
            self._step(model, inputs, targets)
        return super().loss(model, inputs, targets, reduction)

    def _step(self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        w = {name: p.detach() for name, p in self.parameters.items()}
        mixed = {name: torch.lerp(w[name], v, self.alpha.to(v)) for name, v in self.mixed.items()}
        output = torch.func.functional_call(model, {**mixed, **self.own}, (inputs,))
        points = [*mixed.values(), *(e for e in self.own.values() if e.requires_grad)]
        found = torch.autograd.grad(self.criterion(output, targets), points, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(points, found, strict=True)]
        slope = self.alpha.new_zeros(1)
        for (name, v), gradient in zip(self.mixed.items(), gradients, strict=False):
            slope += (gradient * (v.detach() - w[name])).sum()
            gradient.mul_(self.alpha)
        for p, gradient in zip(self.trained, gradients, strict=True):
            p.grad = gradient
        if self.clip_norm:
            nn.utils.clip_grad_norm_(self.trained, self.clip_norm)
        self.optimizer.step()
        if self.adapts:
            self.alpha = (self.alpha - self.rate * slope).clamp(0, 1)

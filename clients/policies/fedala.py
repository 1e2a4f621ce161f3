"""FedALA: Zhang et al. 2023, "Adaptive Local Aggregation for Personalized Federated Learning"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from flwr.common import Scalar

from fedbn_flower.core.ground.settings import setting

from ..base import FedAvgClient
from ..memory import Arrays
from ..modules.lazy_torch import torch
from ..modules.rng import seeded
from ..training import LocalRun

SEED = 7  # appended to the seed of the round, for the share of the examples
CONVERGED, LOSSES, EPOCHS = 0.1, 10, 100
"""The first time, W is learnt until the losses of the last 10 epochs deviate by less than 0.1, as in the
authors' code, and for 100 epochs at most."""


class FedALAClient(FedAvgClient):
    """Begins with ``own + (x - own) W`` in the top layers, W in [0, 1] learnt by element (2212.01197).

    own is the client's model at the end of its last round. Before a round's training, on a share of the
    examples, ``W -= eta grad f (x - own)`` is clipped to [0, 1] after each batch, in evaluation mode: for an
    epoch, and the first time until the loss is steady. Lower layers begin with x. The client evaluates x
    mixed with its last own by its last W.
    """

    purpose = "Begins with the shared model and its own, mixed element by element."
    helps = ("personal-models",)
    paper = "zhang2023fedala"

    decides = "a personal model"
    also_decides = frozenset({"where a round begins"})
    remembers = True
    personal_group = "fedala"

    layers: int = setting(1, ge=1, alias="ala-layers", description="how many top layers are mixed")
    eta: float = setting(1.0, gt=0, alias="ala-eta", description="learning rate of W")
    share: float = setting(
        0.8, gt=0, le=1, alias="ala-share", description="share of the examples to learn W on"
    )

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        top = self._top(run)
        weights = self._mix(run, top)
        metrics = super().train(run, config)
        kept = {f".{name}": weight for name, weight in self._by_every_name(weights).items()}
        self.remember({**self._by_every_name(top), **kept})
        return metrics

    @staticmethod
    def personal(entries: Arrays, kept: Arrays) -> Arrays:
        return {
            name: own + (entries[name] - own) * kept[f".{name}"]
            for name, own in kept.items()
            if f".{name}" in kept
        }

    def _top(self, run: LocalRun) -> dict[str, torch.Tensor]:
        """Return the shared trained parameters of the top layers, by name."""
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in self.trained_names))
        chosen = set(layers[-self.layers :])
        return {n: p for n, p in run.objective.parameters.items() if n.rpartition(".")[0] in chosen}

    def _mix(self, run: LocalRun, top: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Mix the loaded model with the client's last one in place, and return W; {} the first time."""
        kept = self.memory.read(self.personal_group) or {}
        if not top.keys() <= kept.keys():
            return {}
        own = {name: torch.from_numpy(kept[name]).to(p) for name, p in top.items()}
        ahead = {name: p.detach() - own[name] for name, p in top.items()}
        if not any(difference.any() for difference in ahead.values()):
            return {n: torch.from_numpy(kept[f".{n}"]).to(p) for n, p in top.items() if f".{n}" in kept}
        first = not all(f".{name}" in kept for name in top)
        weights = {
            name: torch.ones_like(p) if first else torch.from_numpy(kept[f".{name}"]).to(p)
            for name, p in top.items()
        }
        _set(top, own, ahead, weights)
        losses: list[float] = []
        while not losses or (first and len(losses) < EPOCHS and not is_steady(losses)):
            losses.append(self._learn(run, top, own, ahead, weights, len(losses)))
        return weights

    def _learn(
        self,
        run: LocalRun,
        top: Mapping[str, torch.Tensor],
        own: Mapping[str, torch.Tensor],
        ahead: Mapping[str, torch.Tensor],
        weights: dict[str, torch.Tensor],
        epoch: int,
    ) -> float:
        """Learn W on an epoch of the share of the examples; return the mean loss of its batches."""
        count = len(run.examples)
        chosen = np.random.default_rng([*run.seed, SEED]).permutation(count)[
            : max(1, int(self.share * count))
        ]
        some = replace(run.examples, rows=run.examples.rows[chosen])
        model, losses = self.task.model.eval(), []
        for inputs, targets in some.load(some.batches(run.training.batch_size)):
            with seeded(0):
                loss = run.objective.criterion(model(inputs), targets)
            found = torch.autograd.grad(loss, list(top.values()), allow_unused=True)
            for name, gradient in zip(top, found, strict=True):
                if gradient is not None:
                    weights[name] = (weights[name] - self.eta * gradient * ahead[name]).clamp(0, 1)
            _set(top, own, ahead, weights)
            losses.append(loss.item())
        return float(np.mean(losses))


def is_steady(losses: list[float]) -> bool:
    """Whether the last epochs' losses deviate little."""
    return len(losses) > LOSSES and float(np.std(losses[-LOSSES:])) < CONVERGED


def _set(
    top: Mapping[str, torch.Tensor],
    own: Mapping[str, torch.Tensor],
    ahead: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
) -> None:
    for name, p in top.items():
        p.detach().copy_(own[name] + ahead[name] * weights[name])

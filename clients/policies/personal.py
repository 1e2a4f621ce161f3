"""Clients with personal models, or predictions, in addition to the shared model.

Ditto: Li et al. 2021, "Ditto: Fair and Robust Federated Learning Through Personalization".
APFL: Deng et al. 2020, "Adaptive Personalized Federated Learning".
pFedMe: Dinh et al. 2020, "Personalized Federated Learning with Moreau Envelopes".
kNN-Per: Marfoq et al. 2022, "Personalized Federated Learning through Local Memorization".
FedInit: Sun et al. 2023, "... via Stage-wise Relaxed Initialization" (arXiv 2306.05706).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from flwr.common import NDArrays, Scalar
from numpy.typing import NDArray

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import EVAL_SPLITS, LOCAL_STEPS

from ..base import FedAvgClient
from ..memory import Arrays
from ..modules.arrays import to_array
from ..modules.head import features
from ..modules.lazy_torch import nn, torch
from ..modules.rng import seeded
from ..objectives.base import Around
from ..objectives.drift import FedProx
from ..problems import Classification, Problem
from ..problems.evaluation import evaluation_batch
from ..training import LocalRun, load_entries, train_model
from ..update import Update

PERSONAL = "personal"
DITTO_SEED = 2  # appended to the seed of the round


class DittoClient(FedAvgClient):
    """Shares one model and keeps a personal model close to it (arXiv 2012.04221, algorithm 1).

    After the shared training, the personal model v minimises ``f(v) + lambda/2 ||v - x||^2``, where x is the
    received model. The second term covers shared, trainable parameters only. The client evaluates v, which
    has its personal BatchNorm statistics. The update sent to the server does not depend on v.
    """

    purpose = "Shares one model, and keeps a personal model close to it."
    helps = ("personal-models", "fairness", "hostile-clients")
    paper = "li2021ditto"

    decides = "a personal model"
    remembers = True
    personal_group = PERSONAL

    pulled_by = ("ditto-lambda", 1)
    ditto_lambda: float = setting(
        0.1, ge=0, description="weight of the distance to the shared model", allow_inf_nan=False
    )

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> Update:
        model = self.task.model
        entries = model.state_dict()
        personal = self.memory.read(PERSONAL)
        self.load(entries, parameters)
        proximal = self.with_objective(FedProx)
        run = proximal.begin_run(dict(model.named_parameters()), {**config, "mu": self.ditto_lambda}, {})
        start = personal or {name: to_array(entry) for name, entry in self._varying(entries)}
        update = super().fit(parameters, {**config, EVAL_SPLITS: ""})
        load_entries(entries, self.completed(start))
        train_model(model, replace(run, seed=(*run.seed, DITTO_SEED)))
        self.check_finite(entries)
        self.memory.write(PERSONAL, {name: to_array(entry) for name, entry in self._varying(entries)})
        if config[EVAL_SPLITS]:
            update.metrics.update(self.held_out_metrics(config))
        return update

    def _varying(self, entries: Mapping[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        return [(name, entry) for name, entry in entries.items() if name not in self.constant_names]


ALPHA = ".alpha"
APFL_SEED = 5  # appended to the seed of the round, for dropout in the mix


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
    """The client's own model in a round: v, the entries that are not mixed, and alpha."""

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
        self.rng = np.random.default_rng([*run.seed, APFL_SEED])

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


class PFedMeClient(FedAvgClient):
    """Keeps a model t near the shared one, and moves the shared one towards it (2006.08848).

    Of each batch, K steps of ``f(t) + lambda/2 ||t - w||^2`` move t, then ``w -= lr lambda (w - t)``. Each
    round begins with t and w at the received model. The client evaluates t. The paper's server,
    ``x = (1 - beta) x + beta mean``, is strategy ``fedavg`` with ``server-lr`` beta. Steps of t by
    ``pfedme-lr`` and of w by ``client-lr`` diverge if the rate times lambda is 2 or more. The authors' code
    also has a weight decay of 0.001, and a default ``pfedme-lr`` of 0.09.
    """

    purpose = "Shares one model, and keeps a personal one within a distance that it weighs."
    helps = ("personal-models",)
    paper = "dinh2020pfedme"

    decides = "a personal model"
    also_decides = frozenset({"what a round trains", "how many passes a step has"})
    remembers = True
    personal_group = "pfedme"
    requires: ClassVar = {"objective": {"plain"}}

    weight: float = setting(
        15.0, gt=0, alias="pfedme-lambda", description="lambda, weight of the distance to the shared model"
    )
    steps: int = setting(
        5, ge=1, alias="pfedme-steps", description="K, steps of the personal model for each batch"
    )
    rate: float = setting(0.01, gt=0, alias="pfedme-lr", description="learning rate of the personal model")

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        envelope = _Envelope(run, self)
        changed = {"objective": envelope, "learning_rate": self.rate, "times": self.steps}
        metrics = super().train(run.to(_Repeated, **changed), config)
        envelope.move()
        entries = self.task.model.state_dict()
        self.remember({name: entry for name, entry in entries.items() if name not in self.constant_names})
        for name, p in self.task.model.named_parameters():
            if name in envelope.w:
                p.detach().copy_(envelope.w[name])
        return {**metrics, LOCAL_STEPS: max(1, int(metrics[LOCAL_STEPS]) // self.steps)}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Repeated(LocalRun):
    """A run of several steps on each batch."""

    times: int

    def epochs(self, rng: np.random.Generator) -> Iterator[list[NDArray[np.int64]]]:
        for batches in super().epochs(rng):
            yield [batch for batch in batches for _ in range(self.times)]


class _Envelope(Around):
    """The steps of t, and w, which moves after every K of them."""

    def __init__(self, run: LocalRun, client: PFedMeClient) -> None:
        super().__init__(run.objective)
        self.weight, self.times, self.rate = client.weight, client.steps, run.learning_rate
        self.w = {name: t.detach().clone() for name, t in self.parameters.items()}
        self.done = 0

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.done and self.done % self.times == 0:
            self.move()
        self.done += 1
        return super().loss(model, inputs, targets, reduction)

    def correct_gradients(self) -> None:
        for name, t, gradient in self.gradients():
            gradient.add_(t - self.w[name], alpha=self.weight)

    def move(self) -> None:
        """Move w towards t."""
        for name, t in self.parameters.items():
            self.w[name].sub_(self.w[name] - t.detach(), alpha=self.rate * self.weight)


class KNNPerClient(FedAvgClient):
    """Predicts by ``lambda p_knn + (1 - lambda) p``, neighbours among its own examples (arXiv 2111.09360).

    A class's share in p_knn is proportional to ``sum exp(-d / scale)`` over those of the k nearest training
    examples that have it, d the distance of what goes into the model's head; the authors' code has its
    square over the number of features there. It trains and shares as without. The store of its examples'
    features is made anew for each evaluation, and is never sent.
    """

    purpose = "Shares one model; each client corrects its predictions by its own nearest examples."
    helps = ("personal-models",)
    paper = "marfoq2022knnper"

    decides = "the predictions"

    knn_lambda: float = setting(0.5, ge=0, lt=1, description="share of the neighbours' vote in a prediction")
    knn_neighbours: int = setting(10, ge=1, description="k, how many neighbours vote")
    knn_scale: float = setting(1.0, gt=0, description="distance at which a neighbour's vote falls to 1/e")

    @classmethod
    def misfit(cls, model: nn.Module, problem: Problem, inputs: torch.Tensor) -> str:
        if not isinstance(problem, Classification):
            return "neighbours vote for classes, and there are none to choose from"
        try:
            with torch.no_grad():
                features(model, inputs)
        except ValueError as error:
            return str(error)
        return super().misfit(model, problem, inputs)

    def predictor(self) -> nn.Module:
        task, model = self.task, super().predictor()
        if not len(task.train):
            return model
        from ..modules.layers import Neighbours  # imports PyTorch

        settings = self.knn_lambda, self.knn_neighbours, self.knn_scale
        return Neighbours(model, task.train, evaluation_batch(task.train, task.problem), *settings)


LAST = "fedinit"


class FedInitClient(FedAvgClient):
    """Begins a round at ``x + beta (x - w_i)``, w_i what the client trained last (arXiv 2306.05706).

    Only shared, trained parameters are moved; BatchNorm statistics begin as received. A client that has not
    trained yet begins at x. It evaluates x.
    """

    purpose = "Begins each round a step beyond the shared model, away from what it trained last."
    helps = ("label-skew",)
    paper = "sun2023fedinit"

    decides = "where a round begins"
    remembers = True
    requires: ClassVar = {"objective": {"plain", "fedprox", "fedsam"}}

    relaxation: float = setting(
        0.1, ge=0, alias="init-beta", description="beta, how far beyond the shared model a round begins"
    )

    def train(self, run: LocalRun, config: Mapping[str, Scalar]) -> dict[str, float]:
        parameters = run.objective.parameters
        last = self.memory.read(LAST) or {}
        for name, p in parameters.items():
            if name in last:
                x = p.detach()
                x.add_(x - torch.from_numpy(last[name]).to(x), alpha=self.relaxation)
        metrics = super().train(run, config)
        self.memory.write(LAST, {name: to_array(p) for name, p in parameters.items()})
        return metrics

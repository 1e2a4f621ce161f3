"""Objectives against the drift of clients, most of them the clients' halves of `strategies.rules.drift`.

FedProx: Li et al. 2020, "Federated Optimization in Heterogeneous Networks" (arXiv 1812.06127).
SCAFFOLD: Karimireddy et al. 2020, "Stochastic Controlled Averaging" (arXiv 1910.06378).
FedDC: Gao et al. 2022, "Local Drift Decoupling and Correction" (arXiv 2203.11751).
FedDyn: Acar et al. 2021, "Federated Learning Based on Dynamic Regularization" (arXiv 2111.04263).
FedADMM: Gong et al. 2022, "A Robust Federated Deep Learning Framework" (arXiv 2204.03529).
FedCM: Xu et al. 2021, "Federated Learning with Client-level Momentum" (arXiv 2106.10874).
FedACG: Kim et al. 2024, "Federated Learning with Accelerated Client Gradient" (arXiv 2201.03172).
MimeLite: Karimireddy et al. 2020, "Mimicking Centralized Stochastic Algorithms" (arXiv 2008.03606).
Mime: Karimireddy et al. 2020, "Mimicking Centralized Stochastic Algorithms" (arXiv 2008.03606).
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Literal

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import (
    AUGMENTED,
    CONTROL,
    GRADIENT,
    LOCAL_LENGTH,
    LOCAL_NORM,
    MOMENTUM,
    SECOND_MOMENT,
)

from ..modules.lazy_torch import nn, torch
from ..modules.rng import replayed, seeded
from ..problems.evaluation import evaluation_batch, predictions_of
from ..update import Records
from .base import LocalWork, Objective, Outcome


class FedProx(Objective):
    """``f + mu/2 ||w - x||^2`` (equation 2, squared norm). It adds ``mu (w - x)`` to the gradient.

    With SGD it reports ``local-norm``, the norm of FedNova's accumulation vector (Wang et al. 2020,
    arXiv 2007.07481, section 4). The proximal term decays the weight of earlier gradients in it.
    """

    purpose = "Keeps a client near the global model: label skew, unequal work."
    helps = ("unequal-work", "label-skew")
    paper = "li2020fedprox"

    pulled_by = ("mu", 1)
    mu: float = setting(0.01, ge=0, description="weight of the proximal term", allow_inf_nan=False)

    elementwise = True
    example_wise = True

    def correct_gradients(self) -> None:
        for name, w, gradient in self.gradients():
            gradient.add_(w - self.start[name], alpha=self.mu)

    def finish(self, work: LocalWork) -> Outcome:
        if work.momentum is None:
            return Outcome()
        return Outcome(
            metrics={LOCAL_NORM: local_norm(work.steps, work.momentum, work.learning_rate * self.mu)}
        )


def local_norm(steps: int, momentum: float, pull: float) -> float:
    """Return how far constant unit gradients move the model, over the learning rate. ``pull`` is lr mu.

    ``v <- momentum v + 1 - pull u; u <- u + v`` from 0: ``(1 - (1 - pull)^K) / pull`` without momentum.
    """
    u = v = 0.0
    for _ in range(steps):
        v = momentum * v + 1.0 - pull * u
        u += v
    return u


class Scaffold(Objective):
    """The gradient is ``grad f - c_i + c``; afterwards ``c_i+ = c_i - c + (x - x_i) / (K lr)``.

    Algorithm 1 with option II, initially c_i = 0. ``c_i+ - c_i`` is sent to the server. K is the number of
    plain SGD steps.
    """

    purpose = "The clients' half of SCAFFOLD: corrects drift under label skew."
    helps = ("label-skew",)
    paper = "karimireddy2020scaffold"

    requires: ClassVar = {"strategy": {"scaffold"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}
    remembers = True
    elementwise = True
    example_wise = True

    def begin(self) -> None:
        self.c_i, self.c = self.tensors(self.memory), self.received_tensors(CONTROL)

    def correct_gradients(self) -> None:
        for name, _, gradient in self.gradients():
            gradient.add_(self.c[name] - self.c_i[name])

    def finish(self, work: LocalWork) -> Outcome:
        change = {
            name: (self.start[name] - w.detach()) / (work.steps * work.learning_rate) - self.c[name]
            for name, w in self.parameters.items()
        }
        return Outcome(
            memory={name: (self.c_i[name] + d).numpy(force=True) for name, d in change.items()},
            records={CONTROL: {name: d.numpy(force=True) for name, d in change.items()}},
        )


class ScaffoldMomentum(Scaffold):
    """SCAFFOLD with momentum SGD: after every step w moves by ``-lr (c - c_i)``, not through the momentum.

    This is not the paper's algorithm but the code of NIID-Bench (Li et al. 2022, arXiv 2102.02079, table 3):
    c_i+ is not a mean gradient, but a mean step over lr, including momentum.
    """

    purpose = "The same with momentum, as in NIID-Bench's code."
    helps = ("label-skew",)
    paper = "li2022niidbench"

    requires: ClassVar = {
        "strategy": {"scaffold-momentum"},
        "client-optimizer": {"sgd"},
        "clip-norm": {0.0},
        "agc": {0.0},
    }
    elementwise = True

    momentum: float = setting(0.0, alias="client-momentum")

    def begin(self) -> None:
        super().begin()
        self.moving: set[str] = set()

    def correct_gradients(self) -> None:
        """Add a term that makes the velocity, v = momentum v + gradient, greater by c - c_i in every step."""
        for name, _, gradient in self.gradients():
            share = 1.0 - self.momentum if name in self.moving else 1.0
            gradient.add_(self.c[name] - self.c_i[name], alpha=share)
            self.moving.add(name)


DRIFT = "drift/"
"""How the names of h_i begin in the memory."""


class FedDC(Scaffold):
    """``f + alpha/2 ||w + h_i - x||^2 + <w, c - c_i>``; afterwards ``h_i += x_i - x``, c_i as in SCAFFOLD.

    Initially h_i = c_i = 0. c_i is that of the authors' code, which takes the
    correction itself off; in the paper's equation it is the last round's (x - x_i) / (K lr).
    """

    purpose = "The clients' half of FedDC: learns how far the client drifts, and corrects for it."
    helps = ("label-skew",)
    paper = "gao2022feddc"

    requires: ClassVar = {"strategy": {"feddc"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}
    elementwise = True
    example_wise = True

    pulled_by = ("dc-alpha", 1)
    alpha: float = setting(
        0.01, gt=0, alias="dc-alpha", description="weight of the distance to x", allow_inf_nan=False
    )

    def begin(self) -> None:
        super().begin()
        memory = self.memory or {}
        drift = {name: memory[DRIFT + name] for name in self.start if DRIFT + name in memory}
        self.h_i = self.tensors(drift)

    def correct_gradients(self) -> None:
        super().correct_gradients()
        for name, w, gradient in self.gradients():
            gradient.add_(w + self.h_i[name] - self.start[name], alpha=self.alpha)

    def finish(self, work: LocalWork) -> Outcome:
        outcome = super().finish(work)
        drift = {
            DRIFT + name: (self.h_i[name] + w.detach() - self.start[name]).numpy(force=True)
            for name, w in self.parameters.items()
        }
        return Outcome({**(outcome.memory or {}), **drift}, outcome.records, outcome.metrics)


class FedDyn(Objective):
    """``f - <g_i, w> + alpha/2 ||w - x||^2``; afterwards ``g_i -= alpha (x_i - x)``.

    Algorithm 1, initially g_i = 0. It adds ``-g_i + alpha (w - x)`` to the gradient.
    """

    purpose = "The clients' half of FedDyn: corrects drift under label skew."
    helps = ("label-skew",)
    paper = "acar2021feddyn"

    pulled_by = ("alpha", 1)
    alpha: float = setting(0.01, gt=0, description="weight of the regulariser", allow_inf_nan=False)

    requires: ClassVar = {"strategy": {"feddyn"}}
    remembers = True
    elementwise = True
    example_wise = True

    def begin(self) -> None:
        self.g = self.tensors(self.memory)

    def correct_gradients(self) -> None:
        for name, w, gradient in self.gradients():
            gradient.sub_(self.g[name]).add_(w - self.start[name], alpha=self.alpha)

    def finish(self, work: LocalWork) -> Outcome:
        g = {
            name: (self.g[name] - self.alpha * (w.detach() - self.start[name])).numpy(force=True)
            for name, w in self.parameters.items()
        }
        return Outcome(memory=g)


LAST = "last/"
"""How the names of the client's last x_i begin in the memory."""


class FedADMM(Objective):
    """``f + <y_i, w - x> + rho/2 ||w - x||^2``; afterwards ``y_i += rho (x_i - x)``.

    Initially y_i = 0, and x_i is the run's initial model. The change of ``x_i + y_i / rho`` since the
    client's last round is sent to the server. Training begins at x, as in the authors' code.
    """

    purpose = "The clients' half of FedADMM: prices for the distance to the model."
    helps = ("label-skew", "unequal-work")
    paper = "gong2022fedadmm"

    pulled_by = ("admm-rho", 1)
    rho: float = setting(
        0.01, gt=0, alias="admm-rho", description="weight of the penalty", allow_inf_nan=False
    )

    requires: ClassVar = {"strategy": {"fedadmm"}}
    remembers = True
    elementwise = True
    example_wise = True

    def begin(self) -> None:
        self.y = self.tensors(self.memory)

    def correct_gradients(self) -> None:
        for name, w, gradient in self.gradients():
            gradient.add_(self.y[name]).add_(w - self.start[name], alpha=self.rho)

    def finish(self, work: LocalWork) -> Outcome:
        memory = self.memory or {}
        last = {name: memory.get(LAST + name, self.client.initial.get(name)) for name in self.start}
        moved = {name: w.detach() - self.start[name] for name, w in self.parameters.items()}
        change = {
            name: w.detach() - torch.as_tensor(last[name], device=w.device) + moved[name]
            for name, w in self.parameters.items()
        }
        return Outcome(
            memory={
                **{name: (self.y[name] + self.rho * d).numpy(force=True) for name, d in moved.items()},
                **{LAST + name: w.detach().numpy(force=True).copy() for name, w in self.parameters.items()},
            },
            records={AUGMENTED: {name: d.numpy(force=True) for name, d in change.items()}},
        )


class FedCM(Objective):
    """The gradient is ``a grad f + (1 - a) d``, d the server's mean gradient of the last round.

    d is 0 in the first round, so its steps are shorter by a. The client reports ``local-length``, K lr.
    """

    purpose = "The clients' half of FedCM: a share of each step is the last round's global direction."
    helps = ("label-skew", "few-rounds")
    paper = "xu2021fedcm"

    requires: ClassVar = {"strategy": {"fedcm"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}
    elementwise = True
    example_wise = True

    share: float = setting(
        0.1, gt=0, le=1, alias="cm-alpha", description="a, the share of the client's own gradient"
    )

    def begin(self) -> None:
        self.d = self.received_tensors(MOMENTUM)

    def correct_gradients(self) -> None:
        for name, _, gradient in self.gradients():
            gradient.mul_(self.share).add_(self.d[name], alpha=1 - self.share)

    def finish(self, work: LocalWork) -> Outcome:
        return Outcome(metrics={LOCAL_LENGTH: work.steps * work.learning_rate})


class FedACG(Objective):
    """``f + beta/2 ||w - y||^2``, y the model that the client got: x and what momentum adds to it.

    The authors' code has 0.001 for beta/2.
    """

    purpose = "The clients' half of FedACG: holds them near where momentum leads."
    helps = ("label-skew", "few-rounds")
    paper = "kim2024fedacg"

    requires: ClassVar = {"strategy": {"fedacg"}}
    elementwise = True
    example_wise = True

    pulled_by = ("acg-beta", 1)
    beta: float = setting(
        0.01, ge=0, alias="acg-beta", description="weight of the proximal term", allow_inf_nan=False
    )

    def correct_gradients(self) -> None:
        for name, w, gradient in self.gradients():
            gradient.add_(w - self.start[name], alpha=self.beta)


class MimeLite(Objective):
    """The step of the server's optimiser from its state, which stays as it was sent.

    On a batch's gradient g it is ``b1 m + (1 - b1) g`` with momentum; with Adam that is over
    ``sqrt(b2 v + (1 - b2) g^2) + tau``; with Adagrad it is ``g / (sqrt(v + g^2) + tau)``. The gradient of
    the loss of all of the client's examples at x is sent to the server: one more pass, in evaluation mode,
    without augmentation.
    """

    purpose = "The clients' half of MimeLite: the server's momentum, Adam or Adagrad in every local step."
    helps = ("label-skew", "few-rounds")
    paper = "karimireddy2020mime"

    requires: ClassVar = {"strategy": {"mimelite"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}

    optimizer: Literal["momentum", "adam", "adagrad"] = setting(
        "momentum", alias="mime-optimizer", description="optimiser whose state is the server's"
    )
    beta_1: float = setting(0.9, ge=0, lt=1, alias="mime-beta-1", description="decay of m")
    beta_2: float = setting(0.99, ge=0, lt=1, alias="mime-beta-2", description="decay of v, with adam")
    tau: float = setting(
        1e-3, gt=0, alias="mime-tau", description="added to the root of v, with adam and adagrad"
    )

    def begin(self) -> None:
        self.read_state()
        self.at_start = self.full_gradient()

    def read_state(self) -> None:
        """Read m and v as sent by the server."""
        if self.optimizer != "adagrad":
            self.m = self.received_tensors(MOMENTUM)
        if self.optimizer != "momentum":
            self.v = self.received_tensors(SECOND_MOMENT)

    def full_gradient(self) -> dict[str, torch.Tensor]:
        """Return the gradient at x of the mean loss over all predictions of the client's examples, by name.

        The model is in evaluation mode, and does not change.
        """
        model, examples = self.client.model, self.client.examples
        total = {name: torch.zeros_like(x) for name, x in self.start.items()}
        predictions = 0.0
        model.eval()
        with seeded(0):
            for inputs, targets in examples.load(examples.batches(evaluation_batch(examples, self.problem))):
                count = float(predictions_of(self.problem, targets).sum())
                loss = self.criterion(model(inputs), targets)
                found = torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True)
                for name, gradient in zip(total, found, strict=True):
                    if gradient is not None:
                        total[name].add_(gradient, alpha=count)
                predictions += count
        return {name: gradient / predictions for name, gradient in total.items()}

    def correct_gradients(self) -> None:
        for name, _, gradient in self.gradients():
            if self.optimizer != "momentum":
                decays = self.optimizer == "adam"
                v = self.beta_2 * self.v[name] if decays else self.v[name]
                square = gradient.square().mul_(1 - self.beta_2 if decays else 1.0)
                denominator = (v + square).sqrt_().add_(self.tau)
            if self.optimizer != "adagrad":
                gradient.mul_(1 - self.beta_1).add_(self.m[name], alpha=self.beta_1)
            if self.optimizer != "momentum":
                gradient.div_(denominator)

    def finish(self, work: LocalWork) -> Outcome:
        return Outcome(records={GRADIENT: {name: g.numpy(force=True) for name, g in self.at_start.items()}})


class Mime(MimeLite):
    """MimeLite's step for SVRG's gradient, ``g(w; batch) - g(x; batch) + c``.

    c is the mean over the round's clients of the gradient of all of their examples at x, for which the server
    asks before the round's training. Both gradients of a batch are those of training mode with the same draws
    (dropout); the one at x moves no BatchNorm statistics. So at w = x the step is the server's own.
    """

    purpose = "The clients' half of Mime: MimeLite's steps, corrected by all clients' gradient."
    helps = ("label-skew", "few-rounds")
    paper = "karimireddy2020mime"

    requires: ClassVar = MimeLite.requires | {"strategy": {"mime"}}

    def begin(self) -> None:
        self.read_state()

    @cached_property
    def mean(self) -> dict[str, torch.Tensor]:
        """c; it does not exist yet when the server asks for it."""
        return self.received_tensors(GRADIENT)

    def first_answer(self) -> Records:
        return {GRADIENT: {name: g.numpy(force=True) for name, g in self.full_gradient().items()}}

    def loss(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor, reduction: str = "mean"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.of_batch = self.gradients_at_start(model, inputs, targets)
        return super().loss(model, inputs, targets, reduction)

    def gradients_at_start(
        self, model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the gradients of a batch's loss at x, by name; the model does not change."""
        trained = {name: w for name, w in self.parameters.items() if w.requires_grad}
        here = {name: w.detach().clone() for name, w in trained.items()}
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        for name, w in trained.items():
            w.detach().copy_(self.start[name])
        with replayed():
            loss = self.criterion(model(inputs), targets)
            found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        for name, w in trained.items():
            w.detach().copy_(here[name])
        for buffer, before in buffers:
            buffer.copy_(before)
        return {name: g for name, g in zip(trained, found, strict=True) if g is not None}

    def correct_gradients(self) -> None:
        for name, _, gradient in self.gradients():
            gradient.add_(self.mean[name])
            if name in self.of_batch:
                gradient.sub_(self.of_batch[name])
        super().correct_gradients()

    def finish(self, work: LocalWork) -> Outcome:
        return Outcome()

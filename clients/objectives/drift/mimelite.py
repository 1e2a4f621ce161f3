"""MimeLite: Karimireddy et al. 2020, "Mimicking Centralized Stochastic Algorithms" (arXiv 2008.03606)."""

from __future__ import annotations

from typing import ClassVar, Literal

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import GRADIENT, MOMENTUM, SECOND_MOMENT

from ...modules.lazy_torch import torch
from ...modules.rng import seeded
from ...problems.evaluation import evaluation_batch, predictions_of
from ..base import LocalWork, Objective, Outcome


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
        """Read m and v as they were sent."""
        if self.optimizer != "adagrad":
            self.m = self.received_tensors(MOMENTUM)
        if self.optimizer != "momentum":
            self.v = self.received_tensors(SECOND_MOMENT)

    def full_gradient(self) -> dict[str, torch.Tensor]:
        """Return the gradient at x of the mean loss over all predictions of the client's examples, by name.

        The model is in evaluation mode; nothing of it changes.
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

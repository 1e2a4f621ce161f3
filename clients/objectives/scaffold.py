"""SCAFFOLD: Karimireddy et al. 2020, "Stochastic Controlled Averaging" (arXiv 1910.06378)."""

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import CONTROL

from .base import LocalWork, Objective, Outcome


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

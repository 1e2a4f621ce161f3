"""SCAFFOLD: Karimireddy et al. 2020, "Stochastic Controlled Averaging" (arXiv 1910.06378)."""

from collections.abc import Mapping

from flwr.common import Scalar
from torch import nn

from .base import Arrays, Objective, Outcome


class Scaffold(Objective):
    """The gradient is ``grad f - c_i + c``; afterwards ``c_i+ = c_i - c + (x - x_i) / (K lr)``.

    Algorithm 1 with option II, c_i = 0 at first; ``c_i+ - c_i`` goes to the server. K counts plain SGD steps.
    """

    partner = "scaffold"

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        settings: Mapping[str, Scalar],
        memory: Arrays | None = None,
        control: Arrays | None = None,
    ) -> None:
        super().__init__(parameters, settings, memory, control)
        if control is None:
            raise ValueError("scaffold needs the server's control variate, which did not come")
        self.c_i, self.c = self.tensors(memory), self.tensors(control)

    def correct_gradients(self) -> None:
        for name, w in self.parameters.items():
            assert w.grad is not None
            w.grad.add_(self.c[name] - self.c_i[name])

    def finish(self, steps: int, learning_rate: float) -> Outcome:
        change = {
            name: (self.start[name] - w.detach()) / (steps * learning_rate) - self.c[name]
            for name, w in self.parameters.items()
        }
        return Outcome(
            memory={name: (self.c_i[name] + d).numpy() for name, d in change.items()},
            control={name: d.numpy() for name, d in change.items()},
        )

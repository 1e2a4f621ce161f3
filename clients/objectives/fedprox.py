"""FedProx: Li et al. 2020, "Federated Optimization in Heterogeneous Networks" (arXiv 1812.06127)."""

from collections.abc import Mapping

from flwr.common import Scalar
from torch import nn

from .base import Arrays, Objective


class FedProx(Objective):
    """``f + mu/2 ||w - x||^2`` (equation 2, the norm squared); its gradient adds ``mu (w - x)``."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        settings: Mapping[str, Scalar],
        memory: Arrays | None = None,
        control: Arrays | None = None,
    ) -> None:
        super().__init__(parameters, settings, memory, control)
        self.mu = float(settings["mu"])

    def correct_gradients(self) -> None:
        for name, w in self.parameters.items():
            assert w.grad is not None
            w.grad.add_(w.detach() - self.start[name], alpha=self.mu)

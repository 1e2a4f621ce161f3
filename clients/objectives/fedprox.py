"""FedProx: Li et al. 2020, "Federated Optimization in Heterogeneous Networks" (arXiv 1812.06127)."""

from .base import Objective


class FedProx(Objective):
    """``f + mu/2 ||w - x||^2`` (equation 2, the norm squared); its gradient adds ``mu (w - x)``."""

    def begin(self) -> None:
        self.mu = float(self.settings["mu"])

    def correct_gradients(self) -> None:
        for name, w, gradient in self.gradients():
            gradient.add_(w - self.start[name], alpha=self.mu)

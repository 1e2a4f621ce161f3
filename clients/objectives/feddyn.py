"""FedDyn: Acar et al. 2021, "Federated Learning Based on Dynamic Regularization" (arXiv 2111.04263)."""

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting

from .base import LocalWork, Objective, Outcome


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

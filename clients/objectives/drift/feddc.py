"""FedDC: Gao et al. 2022, "Local Drift Decoupling and Correction" (arXiv 2203.11751)."""

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting

from ..base import LocalWork, Outcome
from ..scaffold import Scaffold

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

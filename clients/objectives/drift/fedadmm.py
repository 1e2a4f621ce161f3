"""FedADMM: Gong et al. 2022, "A Robust Federated Deep Learning Framework" (arXiv 2204.03529)."""

from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import AUGMENTED

from ...modules.lazy_torch import torch
from ..base import LocalWork, Objective, Outcome

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

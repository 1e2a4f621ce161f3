"""FedNova: Wang et al. 2020, "Tackling the Objective Inconsistency Problem" (arXiv 2007.07481)."""

from dataclasses import dataclass

import numpy as np
from flwr.app import RecordDict

from .base import PseudoGradientStrategy
from .checks import TrainReply, positive_number, require
from .vectors import Layout, Vector

STEPS = "local-steps"


@dataclass(eq=False, kw_only=True)
class FedNova(PseudoGradientStrategy):
    """``x += eta tau_eff sum_i p_i (x_i - x) / a_i`` with ``tau_eff = sum_i p_i a_i`` (equations 6 to 8).

    a_i is the norm of client i's accumulation vector: its ``local-steps`` K under plain SGD, and
    ``(K - rho (1 - rho^K) / (1 - rho)) / (1 - rho)`` under SGD with momentum rho. Where all clients make as
    many steps, it is FedAvg. With a robust mean, both sums are that mean, and p_i falls away.

    Parameters
    ----------
    eta : float
        Server learning rate, > 0.
    client_momentum : float
        rho, the momentum of the clients' SGD, in [0, 1).
    """

    eta: float = 1.0
    client_momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.eta > 0, "eta", self.eta, "a number > 0")
        rho = self.client_momentum
        require(0 <= rho < 1, "client_momentum", rho, "a number in [0, 1)")

    def begin(self, layout: Layout) -> None:
        self._work = self.mean_of(np.zeros(1))

    def absorb(self, content: RecordDict, answer: TrainReply, layout: Layout) -> float:
        steps = positive_number(answer.metrics, STEPS, whole=True)
        rho = self.client_momentum
        work: float = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        self._work.add([np.array(work)], answer.weight)
        return 1.0 / work

    def step(self, delta: Vector, t: int) -> Vector:
        return self.eta * float(self._work.mean()[0]) * delta

"""FedNova: Wang et al. 2020, "Tackling the Objective Inconsistency Problem" (arXiv 2007.07481)."""

from dataclasses import dataclass

from flwr.app import RecordDict

from .base import PseudoGradientStrategy
from .checks import ReplyRefused, TrainReply, require
from .vectors import Layout, Vector

STEPS = "local-steps"


@dataclass(eq=False, kw_only=True)
class FedNova(PseudoGradientStrategy):
    """``x += eta tau_eff sum_i p_i (x_i - x) / a_i`` with ``tau_eff = sum_i p_i a_i`` (equations 6 to 8).

    a_i is the norm of client i's accumulation vector: its ``local-steps`` K under plain SGD, and
    ``(K - rho (1 - rho^K) / (1 - rho)) / (1 - rho)`` under SGD with momentum rho. Where all clients make as
    many steps, it is FedAvg.

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
        self._work, self._weight = 0.0, 0.0

    def absorb(self, content: RecordDict, answer: TrainReply, layout: Layout) -> float:
        steps = answer.metrics.get(STEPS)
        if steps is None or isinstance(steps, list) or not 1 <= steps < float("inf"):
            raise ReplyRefused(f"{STEPS!r} is {steps}, not a number >= 1")
        rho = self.client_momentum
        work = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        self._work += answer.weight * work
        self._weight += answer.weight
        return 1.0 / work

    def step(self, delta: Vector, t: int) -> Vector:
        return self.eta * (self._work / self._weight) * delta

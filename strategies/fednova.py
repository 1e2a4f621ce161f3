"""FedNova: Wang et al. 2020, "Tackling the Objective Inconsistency Problem" (arXiv 2007.07481)."""

import numpy as np

from .base import PseudoGradientStrategy
from .checks import Answer, positive_number
from .rounds import Extras, Round
from .settings import setting
from .state import RuleState
from .vectors import Vector
from .wire import LOCAL_NORM, LOCAL_STEPS


class FedNova(PseudoGradientStrategy):
    """``x += eta tau_eff sum_i p_i (x_i - x) / a_i`` with ``tau_eff = sum_i p_i a_i`` (equations 6 to 8).

    a_i is the L1 norm of client i's accumulation vector: ``local-norm`` where the client reports it,
    otherwise its ``local-steps`` K under plain SGD, and ``(K - rho (1 - rho^K) / (1 - rho)) / (1 - rho)``
    under SGD with momentum rho. Where all a_i are equal, it is FedAvg. With a robust mean, both sums are
    that mean, and p_i falls away.
    """

    requires = {"client-optimizer": {"sgd"}}  # noqa: RUF012
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    client_momentum: float = setting(0.0, ge=0, lt=1, description="rho, the momentum of the clients' SGD")

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        work = self._work(answer)
        return Extras(1.0 / work, {"work": np.array([work])})

    def _work(self, answer: Answer) -> float:
        if LOCAL_NORM in answer.metrics:
            return positive_number(answer.metrics, LOCAL_NORM)
        steps = positive_number(answer.metrics, LOCAL_STEPS, whole=True)
        rho = self.client_momentum
        return float((steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho))

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.eta * float(round.means["work"][0]) * delta

"""FedNova: Wang et al. 2020, "Tackling the Objective Inconsistency Problem" (arXiv 2007.07481)."""

import math

import numpy as np

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import LOCAL_NORM, LOCAL_STEPS, NUM_EXAMPLES

from ..aggregation.fold import Extras, Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..base import PseudoGradientStrategy
from ..messages.gate import ReplyRefused
from ..messages.validation import MAX_WEIGHT, Answer, positive_number

LEAST_WORK = 0.1


class FedNova(PseudoGradientStrategy):
    """``x += eta tau_eff sum_i p_i (x_i - x) / a_i`` with ``tau_eff = sum_i p_i a_i`` (equations 6 to 8).

    a_i is the L1 norm of client i's accumulation vector. It is ``local-norm`` if the client reports it.
    Otherwise it is computed from its ``local-steps`` K: K for plain SGD, and
    ``(K - rho (1 - rho^K) / (1 - rho)) / (1 - rho)`` with momentum rho. If all a_i are equal, the rule equals
    FedAvg. With a robust mean, both sums are replaced by that mean, without p_i.

    An answer with an a_i below `LEAST_WORK` is refused: a step counts 1, and only a strong proximal term
    reduces that. If ``local_epochs`` is given, more steps than in that many passes over ``num-examples``
    are refused too. With rho, a_i is at most K / (1 - rho).
    """

    purpose = "For clients that do unequal amounts of local work."
    helps = ("unequal-work",)
    paper = "wang2020fednova"

    requires = {"client-optimizer": {"sgd"}}  # noqa: RUF012
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    client_momentum: float = setting(0.0, ge=0, lt=1, description="rho, the momentum of the clients' SGD")
    local_epochs: int | None = setting(
        None, gt=0, exclude=True, description="maximum passes over a client's examples, if known"
    )
    batch_size: int = setting(1, ge=0, exclude=True, description="examples per step; 0 for all")

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        work = self._work(answer)
        return Extras(1.0 / work, {"work": np.array([work])})

    def _work(self, answer: Answer) -> float:
        rho, max_steps = self.client_momentum, self._max_steps(answer)
        if LOCAL_NORM in answer.metrics:
            norm = positive_number(answer.metrics, LOCAL_NORM, cap=max_steps / (1 - rho))
            if norm < LEAST_WORK:
                raise ReplyRefused(f"{LOCAL_NORM!r} is {norm}, less than {LEAST_WORK}")
            return norm
        steps = positive_number(answer.metrics, LOCAL_STEPS, whole=True, cap=max_steps)
        return float((steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho))

    def _max_steps(self, answer: Answer) -> float:
        if self.local_epochs is None:
            return MAX_WEIGHT
        count = positive_number(answer.metrics, NUM_EXAMPLES, cap=self._max_weight_ or MAX_WEIGHT)
        return self.local_epochs * math.ceil(count / (self.batch_size or count))

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.eta * float(round.means["work"][0]) * delta

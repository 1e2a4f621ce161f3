"""The common part of FedAdagrad, FedYogi and FedAdam: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2."""

from abc import abstractmethod

import numpy as np

from fedbn_flower.core.ground.settings import setting

from ..aggregation.fold import Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector, blocks
from ..base import CURRENT_ARRAYS, PseudoGradientStrategy


class AdaptiveStrategy(PseudoGradientStrategy):
    """``m = b1 m + (1 - b1) D``, v by the rule, ``x += eta m^ / (sqrt(v^) + tau)``.

    With ``bias_correction``, ``m^ = m / (1 - b1^t)`` at a parameter's t-th update, and v^ is defined by the
    rule. A parameter that is unfrozen later than others has fewer updates, so t is counted by parameter.
    Without it, ``m^ = m`` and ``v^ = v``. The paper's own form has no correction and ``v_init = tau**2``.
    """

    post_processes_mean = True

    eta: float = setting(0.01, gt=0, alias="server-lr", description="server learning rate")
    eta_l: float = setting(0.1, gt=0, exclude=True, description="unused, as in Flower: no flag")
    beta_1: float = setting(0.9, ge=0, lt=1, description="decay of the first moment")
    tau: float = setting(1e-3, gt=0, description="degree of adaptivity: the denominator is sqrt(v) + tau")
    bias_correction: bool = setting(
        True, description="whether to correct the bias of moments that start at 0"
    )
    v_init: float = setting(0.0, ge=0, description="initial value of every entry of the second moment")

    current_arrays = CURRENT_ARRAYS

    @abstractmethod
    def second_moment(self, v: Vector, squared: Vector) -> None:
        """Update ``v`` in place from the squared pseudo-gradient. Only this line differs between the rules.

        It is called block by block, so it must be elementwise.
        """

    def second_correction(self, t: int) -> float:
        """Return the divisor of v at the t-th update, t = 1, 2, ..., with bias correction."""
        return 1.0

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        m = state.vector("m", like=delta)
        v = state.vector("v", like=delta, fill=self.v_init)
        t = state.count(round.update)
        if isinstance(t, int):
            rate, v_correction = self._corrected(t)
        else:
            by_count = np.array([self._corrected(k) for k in range(1, round.update + 1)], delta.dtype)
        for part in blocks(delta.size):
            m[part] *= self.beta_1
            m[part] += (1 - self.beta_1) * delta[part]
            self.second_moment(v[part], np.square(delta[part]))
            if not isinstance(t, int):
                rate, v_correction = by_count[t[part] - 1].T
            denominator = np.sqrt(v[part] / v_correction)
            denominator += self.tau
            np.divide(rate * m[part], denominator, out=delta[part])
        return delta

    def _corrected(self, t: int) -> tuple[float, float]:
        """Return the factor on m, ``eta / (1 - b1^t)``, and the divisor of v."""
        if not self.bias_correction:
            return self.eta, 1.0
        return self.eta / (1 - self.beta_1**t), self.second_correction(t)


class DecayingStrategy(AdaptiveStrategy):
    """An adaptive rule whose v decays by beta_2: ``v^ = v / (1 - b2^t)``."""

    beta_2: float = setting(0.99, ge=0, lt=1, description="decay of the second moment")

    def second_correction(self, t: int) -> float:
        return 1 - self.beta_2**t

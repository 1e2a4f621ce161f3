"""Rules with a step size for each parameter.

FedAdagrad, FedAdam and FedYogi: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2.
FedAMS: Wang et al. 2022, "Communication-Efficient Adaptive Federated Learning" (arXiv 2205.02719).
"""

from abc import abstractmethod

import numpy as np

from fedbn_flower.core.ground.settings import setting

from ..aggregation.fold import CURRENT_ARRAYS, Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector, blocks
from ..base import PseudoGradientStrategy


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


class FedAdagrad(AdaptiveStrategy):
    """``x += eta m / (sqrt(v) + tau)``, ``m = b1 m + (1 - b1) D``, ``v += D^2``; by default b1 is 0.

    v is a sum, not an average, so it has no bias and no decay ``beta_2``. As in the paper, m is not corrected
    either: ``bias_correction`` is off.
    """

    purpose = "A step size for each parameter that only shrinks: for sparse gradients, as of text."
    helps = ("few-rounds", "label-skew")
    paper = "reddi2021adaptive"

    beta_1 = 0.0
    bias_correction = False

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v += squared


class FedAdam(DecayingStrategy):
    """``x += eta m^ / (sqrt(v^) + tau)``, ``m = b1 m + (1 - b1) D``, ``v = b2 v + (1 - b2) D^2``."""

    purpose = "A step size for each parameter that follows recent rounds: few rounds, label skew."
    helps = ("few-rounds", "label-skew")
    paper = "reddi2021adaptive"

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v *= self.beta_2
        v += (1 - self.beta_2) * squared


class FedYogi(DecayingStrategy):
    """``x += eta m^ / (sqrt(v^) + tau)``, m as in FedAdam, ``v -= (1 - b2) D^2 sign(v - D^2)``.

    v moves by at most ``(1 - b2) D^2`` a round.
    """

    purpose = "A step size for each parameter that changes slowly: the default."
    helps = ("few-rounds",)
    paper = "reddi2021adaptive"

    eta_l = 0.0316

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v -= (1 - self.beta_2) * squared * np.sign(v - squared)


class FedAMS(PseudoGradientStrategy):
    """``x += eta m / sqrt(v^)``, m and v as in FedAdam, uncorrected, ``v^ = max(v^, v, eps)``.

    eps is inside the maximum rather than added to the root, and v^ never decreases, so no step exceeds
    ``eta |m| / sqrt(eps)``.
    """

    purpose = "FedAdam whose step sizes never grow again: no burst after quiet rounds."
    helps = ("few-rounds",)
    paper = "wang2022fedams"
    post_processes_mean = True

    eta: float = setting(0.01, gt=0, alias="server-lr", description="server learning rate")
    beta_1: float = setting(0.9, ge=0, lt=1, description="decay of the first moment")
    beta_2: float = setting(0.99, ge=0, lt=1, description="decay of the second moment")
    epsilon: float = setting(
        1e-6, gt=0, alias="ams-epsilon", description="least second moment that a step is divided by"
    )

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        m, v = state.vector("m", like=delta), state.vector("v", like=delta)
        greatest = state.vector("v-max", like=delta, fill=self.epsilon)
        for part in blocks(delta.size):
            m[part] *= self.beta_1
            m[part] += (1 - self.beta_1) * delta[part]
            v[part] *= self.beta_2
            v[part] += (1 - self.beta_2) * np.square(delta[part])
            np.maximum(greatest[part], v[part], out=greatest[part])
            np.divide(self.eta * m[part], np.sqrt(greatest[part]), out=delta[part])
        return delta

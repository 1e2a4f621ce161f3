"""What FedAdagrad, FedYogi and FedAdam share: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from .base import PseudoGradientStrategy
from .checks import require
from .vectors import Vector, blocks


@dataclass(eq=False, kw_only=True)
class AdaptiveStrategy(PseudoGradientStrategy):
    """``m = b1 m + (1 - b1) D``, v by the rule, ``x += eta m^ / (sqrt(v^) + tau)``.

    With ``bias_correction``, ``m^ = m / (1 - b1^t)`` and ``v^ = v / (1 - b2^t)`` at the t-th update;
    without, ``m^ = m`` and ``v^ = v``. The paper's own form has no correction and ``v_init = tau**2``.

    Parameters
    ----------
    eta : float
        Server learning rate, > 0.
    eta_l : float
        Unused; accepted because Flower's rules take it. Clients choose their own learning rate.
    beta_1 : float
        Decay of the first moment m, in [0, 1).
    beta_2 : float
        Decay of the second moment v, in [0, 1). FedAdagrad has none and ignores it.
    tau : float
        Degree of adaptivity, > 0: the denominator is ``sqrt(v) + tau``.
    bias_correction : bool
        Whether m and v are corrected for their start at zero (in FedAdagrad: m, since v is a sum).
    v_init : float
        Every entry of v before the first update, >= 0.
    """

    eta: float = 0.01
    eta_l: float = 0.0316
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3
    bias_correction: bool = True
    v_init: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.eta > 0, "eta", self.eta, "a number > 0")
        require(0 <= self.beta_1 < 1, "beta_1", self.beta_1, "a number in [0, 1)")
        require(0 <= self.beta_2 < 1, "beta_2", self.beta_2, "a number in [0, 1)")
        require(self.tau > 0, "tau", self.tau, "a number > 0")
        require(self.v_init >= 0, "v_init", self.v_init, "a number >= 0")

    @abstractmethod
    def second_moment(self, v: Vector, squared: Vector) -> None:
        """Update ``v`` in place from the squared pseudo-gradient, the one line the rules differ in.

        Called for one part of the vectors after the other: entry by entry, nothing else.
        """

    def corrections(self, t: int) -> tuple[float, float]:
        """What m and v are divided by at the t-th update, t = 1, 2, ..."""
        if not self.bias_correction:
            return 1.0, 1.0
        return 1.0 - self.beta_1**t, 1.0 - self.beta_2**t

    def step(self, delta: Vector, t: int) -> Vector:
        m = self.vector("m", like=delta)
        v = self.vector("v", like=delta, fill=self.v_init)
        m_correction, v_correction = self.corrections(t)
        for part in blocks(delta.size):
            m[part] *= self.beta_1
            m[part] += (1 - self.beta_1) * delta[part]
            self.second_moment(v[part], np.square(delta[part]))
            denominator = np.sqrt(v[part] / v_correction)
            denominator += self.tau
            np.divide((self.eta / m_correction) * m[part], denominator, out=delta[part])
        return delta

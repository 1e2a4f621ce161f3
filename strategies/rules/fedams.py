"""FedAMS: Wang et al. 2022, "Communication-Efficient Adaptive Federated Learning" (arXiv 2205.02719)."""

import numpy as np

from fedbn_flower.core.ground.settings import setting

from ..aggregation.fold import Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector, blocks
from ..base import PseudoGradientStrategy


class FedAMS(PseudoGradientStrategy):
    """``x += eta m / sqrt(v^)``, m and v as in FedAdam, uncorrected, ``v^ = max(v^, v, eps)``.

    eps is inside the maximum, not beside the root, and v^ never falls, so no step is longer than
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

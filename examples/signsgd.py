"""A server rule of one's own, with a hyper-parameter of its own.

python run_sim.py --strategy examples/signsgd.py:SignSGD --server-lr 0.005 --decay 0.5
flwr run . --run-config "strategy='examples/signsgd.py:SignSGD' server-lr=0.005 settings='decay=0.5'"
"""

import numpy as np

from fedbn_flower.strategies import PseudoGradientStrategy, Round, RuleState, Vector, setting


class SignSGD(PseudoGradientStrategy):
    """``m = decay m + (1 - decay) D; x += eta sign(m)``.

    Bernstein et al. 2018, "signSGD: Compressed Optimisation for Non-Convex Problems" (arXiv 1802.04434):
    Algorithm 1 without decay, Signum with it, on the pseudo-gradient.
    """

    eta: float = setting(0.01, gt=0, alias="server-lr", description="server learning rate")
    decay: float = setting(0.0, ge=0, lt=1, description="decay of the momentum whose sign is taken")

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        m = state.vector("m", like=delta)  # saved and restored with the run
        m *= self.decay
        m += (1 - self.decay) * delta
        return self.eta * np.sign(m)

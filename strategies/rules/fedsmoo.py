"""FedSMOO: Sun et al. 2023, "Dynamic Regularized Sharpness Aware Minimization in FL" (arXiv 2305.11584)."""

from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import PERTURBATION

from ..aggregation.fold import Extras, Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..base import PseudoGradientStrategy
from ..messages.validation import Answer


class FedSMOO(PseudoGradientStrategy):
    """``h -= sum_i (x_i - x) / (beta M); x = mean_i x_i - beta h``, and one perturbation s for all clients.

    ``s = rho m / ||m||``, m the mean of what clients send of theirs. It needs the local objective
    ``fedsmoo`` with the same ``beta`` and ``rho``. s is sent, and the clients' part ``mu_i - e`` returned, in
    a separate ArrayRecord ``perturbation``; the authors' code leaves e out there, since its norm is small.
    The means are unweighted. M is the number of all clients; by default the number of connected nodes.
    """

    purpose = "FedDyn's correction of drift with one perturbation for all clients (with objective fedsmoo)."
    helps = ("label-skew", "few-rounds")
    paper = "sun2023fedsmoo"

    requires: ClassVar = {"objective": {"fedsmoo"}}
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    rho: float = setting(0.1, ge=0, description="L2 norm of the perturbation", allow_inf_nan=False)
    beta: float = setting(10.0, gt=0, alias="smoo-beta", description="one over the weight of the prox")
    num_clients: int | None = setting(None, gt=0, description="M, the number of all clients")

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        x = round.layout.flatten_parameters(round.sent)
        return {PERTURBATION: round.layout.parameters_record(state.vector("s", like=x))}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras.like_parameters(PERTURBATION, answer, round)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        h, s = state.vector("h", like=delta), state.vector("s", like=delta)
        h -= (round.num_answers / (self.beta * (self.num_clients or round.num_nodes))) * delta
        mean = round.means[PERTURBATION]
        length = float(np.linalg.norm(mean))
        s[:] = mean * (self.rho / length) if length else 0
        return delta - self.beta * h

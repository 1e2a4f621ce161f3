"""FedCM: Xu et al. 2021, "Federated Learning with Client-level Momentum" (arXiv 2106.10874)."""

import numpy as np
from flwr.app import ArrayRecord

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import LOCAL_LENGTH, MOMENTUM

from ...aggregation.fold import Extras, Round
from ...aggregation.rule_state import RuleState
from ...aggregation.vectors import Vector
from ...base import PseudoGradientStrategy
from ...messages.validation import Answer, positive_number


class FedCM(PseudoGradientStrategy):
    """``d = mean_i (x - x_i) / (lr K_i); x -= eta d``, over the answers.

    It needs the local objective ``fedcm``, whose steps are ``a g + (1 - a) d`` with the d of the last round,
    0 in the first. d is sent in a separate ArrayRecord ``momentum``. As in the paper, the mean is unweighted.
    With eta 0, eta is the mean of the lr K_i, which is the authors' step: x becomes the mean of the x_i where
    all K_i are equal.
    """

    purpose = "Gives every local step the global direction of the last round (with objective fedcm)."
    helps = ("label-skew", "few-rounds")
    paper = "xu2021fedcm"

    requires = {  # noqa: RUF012
        "objective": {"fedcm"},
        "client-optimizer": {"sgd"},
        "client-momentum": {0.0},
        "dp": {"none"},  # under which clients tell no length of their steps
    }
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    eta: float = setting(
        0.0, ge=0, alias="server-lr", description="global step size; 0 for the mean of lr K_i"
    )

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        x = round.layout.flatten_parameters(round.sent)
        return {MOMENTUM: round.layout.parameters_record(state.vector("d", like=x))}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        length = positive_number(answer.metrics, LOCAL_LENGTH)
        return Extras(1.0 / length, {LOCAL_LENGTH: np.array([length])})

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        state.vector("d", like=delta)[:] = -delta
        return (self.eta or float(round.means[LOCAL_LENGTH][0])) * delta

"""FedADMM: Gong et al. 2022, "A Robust Federated Deep Learning Framework" (arXiv 2204.03529)."""

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import AUGMENTED

from ...aggregation.fold import Extras, Round
from ...aggregation.rule_state import RuleState
from ...aggregation.vectors import Vector
from ...base import PseudoGradientStrategy
from ...messages.validation import Answer


class FedADMM(PseudoGradientStrategy):
    """``x += eta mean_i (u_i+ - u_i)`` with ``u_i = x_i + y_i / rho``, over the answers.

    It needs the local objective ``fedadmm``. A client's change of u_i, which it keeps, is in a separate
    ArrayRecord ``augmented`` of its answer. As in the paper, the mean is unweighted. With eta 1 and all
    clients in every round it is FedDyn with alpha = rho. The authors' code takes x for the client's last x_i,
    so that it sends ``2 (x_i - x)``.
    """

    purpose = "ADMM: each client has prices for its distance to the model (with objective fedadmm)."
    helps = ("label-skew", "unequal-work")
    paper = "gong2022fedadmm"

    requires = {"objective": {"fedadmm"}, "clip-update-norm": {0.0}}  # noqa: RUF012
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server step size eta")

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras.like_parameters(AUGMENTED, answer, round)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        return self.eta * round.means[AUGMENTED]

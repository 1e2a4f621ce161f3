"""SCAFFOLD: Karimireddy et al. 2020, "Stochastic Controlled Averaging" (arXiv 1910.06378)."""

from dataclasses import replace

from flwr.app import ArrayRecord

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import CONTROL

from ..aggregation.fold import Extras, Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..base import PseudoGradientStrategy
from ..messages.validation import Answer


class Scaffold(PseudoGradientStrategy):
    """``x += eta mean_i (x_i - x); c += (1/M) sum_i (c_i+ - c_i)`` (Algorithm 1), over the answers.

    It needs the local objective ``scaffold``. c is sent, and the changes are returned, in a separate
    ArrayRecord ``control``. As in the paper, the means are unweighted. A robust mean replaces both (the mean
    of the changes is multiplied by the number of answers). M is the number of all clients; by default the
    number of connected nodes.
    """

    purpose = "Corrects drift under label skew by control variates (with objective scaffold)."
    helps = ("label-skew",)
    paper = "karimireddy2020scaffold"

    requires = {"objective": {"scaffold"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}  # noqa: RUF012
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="global step size eta_g")
    num_clients: int | None = setting(None, gt=0, description="M, the number of all clients")

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        x = round.layout.flatten_parameters(round.sent)
        return {CONTROL: round.layout.parameters_record(state.vector("c", like=x))}

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras.like_parameters(CONTROL, answer, round)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        share = round.num_answers / (self.num_clients or round.num_nodes)
        c = state.vector("c", like=delta)
        c += share * round.means[CONTROL]
        return self.eta * delta


class ScaffoldMomentum(Scaffold):
    """``x += eta sum_i p_i (x_i - x)``, and c as in SCAFFOLD: the variant in the code of NIID-Bench.

    Li et al. 2022 (arXiv 2102.02079), table 3. It needs the local objective ``scaffold-momentum``. BatchNorm
    statistics are weighted as the parameters are; the changes of c_i are not weighted.
    """

    purpose = "SCAFFOLD with momentum at the clients, as in NIID-Bench's code."
    helps = ("label-skew",)
    paper = "li2022niidbench"

    requires = {"objective": {"scaffold-momentum"}, "mean": {"weighted"}}  # noqa: RUF012
    weighs_alike = False
    reads_extras_anywhere = True

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return replace(super().read_extras(answer, round), weight=1.0)

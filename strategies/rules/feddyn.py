"""FedDyn: Acar et al. 2021, "Federated Learning Based on Dynamic Regularization" (arXiv 2111.04263)."""

from fedbn_flower.core.ground.settings import setting

from ..aggregation.fold import Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..base import PseudoGradientStrategy


class FedDyn(PseudoGradientStrategy):
    """``h -= (alpha/M) sum_i (x_i - x); x = mean_i x_i - h / alpha`` (Algorithm 1), over the answers.

    It needs the local objective ``feddyn`` with the same ``alpha``. As in the paper, the mean is unweighted.
    M is the number of all clients; by default the number of connected nodes.
    """

    purpose = "Corrects drift under label skew by a term at each client (with objective feddyn)."
    helps = ("label-skew",)
    paper = "acar2021feddyn"

    requires = {"objective": {"feddyn"}}  # noqa: RUF012
    weighs_alike = True
    post_processes_mean = True

    alpha: float = setting(
        0.01, gt=0, description="weight of the dynamic regulariser, the same as at the clients"
    )
    num_clients: int | None = setting(None, gt=0, description="M, the number of all clients")

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        h = state.vector("h", like=delta)
        h -= (self.alpha * round.num_answers / (self.num_clients or round.num_nodes)) * delta
        return delta - h / self.alpha

"""FedDC: Gao et al. 2022, "Local Drift Decoupling and Correction" (arXiv 2203.11751)."""

from ...aggregation.fold import Round
from ...aggregation.rule_state import RuleState
from ...aggregation.vectors import Vector
from ..scaffold import Scaffold


class FedDC(Scaffold):
    """``x = mean_i x_i + h``, ``h += (1/M) sum_i (x_i - x)``, the mean of all drifts; c as in SCAFFOLD.

    It needs the local objective ``feddc``, in which client i has the drift h_i, the sum of its x_i - x. The
    means are unweighted. M is the number of all clients; by default the number of connected nodes. x moves by
    eta times the difference.
    """

    purpose = "Learns each client's drift apart from the model, and takes it off (with objective feddc)."
    helps = ("label-skew",)
    paper = "gao2022feddc"

    requires = {"objective": {"feddc"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}  # noqa: RUF012

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        h = state.vector("h", like=delta)
        h += (round.num_answers / (self.num_clients or round.num_nodes)) * delta
        return super().server_step(delta + h, state, round)

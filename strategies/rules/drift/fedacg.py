"""FedACG: Kim et al. 2024, "Federated Learning with Accelerated Client Gradient" (arXiv 2201.03172)."""

from fedbn_flower.core.ground.settings import setting

from ...aggregation.fold import Round
from ...aggregation.rule_state import RuleState
from ...aggregation.vectors import Vector
from ...base import PseudoGradientStrategy

MOMENTUM = "momentum"


class FedACG(PseudoGradientStrategy):
    """``m = lambda m + D; x += m``; clients get ``x + lambda m``, and D is measured from that.

    It needs the local objective ``fedacg``. What is evaluated and kept is x, not what clients get next.
    """

    purpose = "Lets clients begin where momentum leads, and holds them there (with objective fedacg)."
    helps = ("label-skew", "few-rounds")
    paper = "kim2024fedacg"
    post_processes_mean = True

    requires = {"objective": {"fedacg"}, "compress-down": {"none"}}  # noqa: RUF012

    momentum: float = setting(
        0.85, ge=0, lt=1, alias="acg-lambda", description="lambda, the momentum of the server"
    )

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        """Return the step of what clients get: x + lambda m becomes (x + lambda m + D) + lambda m."""
        m = state.vector(MOMENTUM, like=delta)
        m *= self.momentum
        m += delta
        return delta + self.momentum * m

    def ahead(self, state: RuleState, like: Vector) -> Vector | None:
        return self.momentum * state.vector(MOMENTUM, like=like) if MOMENTUM in state.vectors else None

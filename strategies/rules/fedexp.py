"""FedExP: Jhunjhunwala et al. 2023, "Federated Averaging via Extrapolation" (arXiv 2301.09604)."""

import numpy as np

from fedbn_flower.core.ground.settings import setting

from ..aggregation.fold import Extras, Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector, finite
from ..base import PseudoGradientStrategy
from ..messages.validation import Answer, update_norm

SQUARES = "squares"
STEP = "last-step"


class FedExP(PseudoGradientStrategy):
    """``x += max(1, sum_i p_i |D_i|^2 / (2 (|D|^2 + eps))) D``; the mean of the last two x is the model.

    The server needs the sum of the squared norms beside that of the updates. What is evaluated and kept is
    the mean of the last two x: an extrapolated one swings about the optimum. After the first round they are
    the initial and the first one; the authors' code begins with the mean a round later. There eps is
    multiplied by the number of answers, and shrinks as the square of the clients' rate. BatchNorm statistics
    are those of the last x.
    """

    purpose = "FedAvg with longer steps where clients' updates disagree; nothing to tune."
    helps = ("few-rounds",)
    paper = "jhunjhunwala2023fedexp"

    requires = {"mean": {"weighted"}, "compress-down": {"none"}}  # noqa: RUF012
    reads_extras_anywhere = True

    epsilon: float = setting(
        1e-3, ge=0, alias="exp-epsilon", description="added to |D|^2: bounds a step where D vanishes"
    )

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        norm = update_norm(answer.arrays, finite(round.sent), round.layout.tensors)
        norm = min(norm, self._clip_update_norm_ or norm)
        return Extras(vectors={SQUARES: np.array([norm**2])})

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        parts = dict(round.layout.slices(round.layout.parameters, delta))
        squared = sum(
            float(np.square(parts[names[0]], dtype=np.float64).sum()) for names in round.layout.tensors
        )
        greatest = float(round.means[SQUARES][0]) / 2
        factor = greatest / (squared + self.epsilon) if squared + self.epsilon > 0 else 1.0
        delta *= max(1.0, factor)
        state.vector(STEP, like=delta)[:] = delta
        return delta

    def ahead(self, state: RuleState, like: Vector) -> Vector | None:
        return state.vector(STEP, like=like) / 2 if STEP in state.vectors else None

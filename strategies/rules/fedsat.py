"""FedSat: struggle-aware aggregation; needs the local objective ``fedsat``."""

import numpy as np
from flwr.app import ArrayRecord

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import SCORES, STRUGGLE

from ..aggregation.fold import Extras, Round
from ..aggregation.rule_state import RuleState
from ..aggregation.vectors import Vector
from ..base import PseudoGradientStrategy
from ..messages.gate import ReplyRefused, record_of
from ..messages.ranges import Range
from ..messages.validation import Answer, check_arrays

KEPT = "kept"


class FedSat(PseudoGradientStrategy):
    """``x += eta mean_{c in P} sum_k w_k^c (x_k - x)``, ``w_k^c`` proportional to ``max(0, 1 - S_k[c])``.

    S_k[c] in [0, 1] is the struggle score of client k on class c, in an ArrayRecord ``struggle`` of its
    answer. P are the ``top_p`` classes of the greatest ``mean_k S_k``. If all weights of a class are 0, all
    clients have equal weight. So they have for BatchNorm statistics.

    P is known only after all answers, so a sum is kept for every class: the memory of one model per class.
    """

    purpose = "Favours clients that are good at the classes that others get wrong."
    helps = ("label-skew",)
    paper = "chowdhury2024fedsat"

    requires = {"objective": {"fedsat"}, "mean": {"weighted"}, "clip-update-norm": {0.0}}  # noqa: RUF012
    weighs_alike = True
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    top_p: int = setting(
        3,
        ge=1,
        description="number of classes used, those with the highest struggle; all if there are fewer",
    )
    num_classes: int | None = setting(
        None,
        gt=0,
        exclude=True,
        description="number of scores in an answer; None to take it from the first answer",
    )

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        record = record_of(answer.content, STRUGGLE, ArrayRecord)
        expected = {SCORES: np.zeros(self.num_classes)} if self.num_classes else None
        scores = check_arrays(record, expected, {SCORES: Range(0, 1)}).get(SCORES, np.empty(0))
        if scores.ndim != 1 or not len(scores):
            raise ReplyRefused(f"{STRUGGLE}: {SCORES!r} must be numbers in [0, 1], one per class")
        kept = 1 - scores.astype(np.float64)
        x, x_k = (round.layout.flatten_parameters(arrays) for arrays in (round.sent, answer.arrays))
        difference = x_k - x
        by_class = {f"class-{c}": difference * difference.dtype.type(weight) for c, weight in enumerate(kept)}
        return Extras(vectors={KEPT: kept, **by_class})

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        kept = round.means[KEPT]
        chosen = np.argsort(kept, kind="stable")[: self.top_p]
        step = np.zeros_like(delta)
        for c in chosen:
            step += round.means[f"class-{c}"] / kept[c] if kept[c] > 0 else delta
        return step * (self.eta / len(chosen))

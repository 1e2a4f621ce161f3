"""TERM: Li et al. 2021, "Tilted Empirical Risk Minimization" (arXiv 2007.01162)."""

import math
from typing import ClassVar

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import START_LOSS

from ...aggregation.fold import Extras, Round
from ...messages.gate import ReplyRefused
from ...messages.validation import Answer
from ..fedavg import FedAvg
from .qfedavg import loss_of

MOST = 60.0
"""Of t F_i: float32 holds weights up to e^88."""


class TERM(FedAvg):
    """FedAvg with the weights ``p_i e^(t F_i)``: the gradient of the tilted loss over clients.

    F_i is the training loss of the model that was sent, before the client trains: ``start-loss`` of its
    answer. t > 0 favours clients whom the model fits badly, t < 0 those whom it fits well; with t = 0 it is
    FedAvg. The weights are those of BatchNorm statistics too.
    """

    purpose = "Weighs clients by the exponential of their loss: fair with t > 0, robust with t < 0."
    helps = ("fairness",)
    paper = "li2021term"

    requires = {"mean": {"weighted", "geometric-median"}, "dp": {"none"}}  # noqa: RUF012
    asks: ClassVar = {START_LOSS: True}
    reads_extras_anywhere = True

    tilt: float = setting(1.0, description="t, how strongly losses tilt the weights")

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        loss = loss_of(answer, START_LOSS)
        if abs(self.tilt * loss) > MOST:
            found = f"{START_LOSS!r} {loss:.6g} times tilt {self.tilt:g} is beyond {MOST:g}"
            raise ReplyRefused(f"{found}: choose a smaller tilt", "tilt")
        return Extras(share=math.exp(self.tilt * loss))

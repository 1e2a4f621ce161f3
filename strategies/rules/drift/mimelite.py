"""MimeLite: Karimireddy et al. 2020, "Mimicking Centralized Stochastic Algorithms" (arXiv 2008.03606)."""

from typing import Literal

import numpy as np
from flwr.app import ArrayRecord

from fedbn_flower.core.ground.settings import setting
from fedbn_flower.core.ground.wire import GRADIENT, MOMENTUM, SECOND_MOMENT

from ...aggregation.fold import Extras, Round
from ...aggregation.rule_state import RuleState
from ...aggregation.vectors import Vector
from ...base import PseudoGradientStrategy
from ...messages.validation import Answer

USED = {"momentum": (MOMENTUM,), "adam": (MOMENTUM, SECOND_MOMENT), "adagrad": (SECOND_MOMENT,)}
"""The state of each optimiser: the names of its vectors, and of the records in which they are sent."""


class MimeLite(PseudoGradientStrategy):
    """``x += eta mean_i (x_i - x)``; ``m, v`` follow the mean of the clients' gradients at x.

    It needs the local objective ``mimelite``, whose steps are those of the server's optimiser from the fixed
    m and v that it is sent. With momentum and Adam ``m = b1 m + (1 - b1) g``, with Adam
    ``v = b2 v + (1 - b2) g^2``, with Adagrad ``v += g^2``, g the mean of the gradients of all of each
    client's examples, in a separate ArrayRecord ``gradient`` of its answer. As in the paper, means are
    unweighted.
    """

    purpose = "Has clients step by the server's momentum, Adam or Adagrad (with objective mimelite)."
    helps = ("label-skew", "few-rounds")
    paper = "karimireddy2020mime"

    requires = {"objective": {"mimelite"}, "client-optimizer": {"sgd"}, "client-momentum": {0.0}}  # noqa: RUF012
    weighs_alike = True
    extras_like_parameters = True
    reads_extras_anywhere = True

    eta: float = setting(1.0, gt=0, alias="server-lr", description="server learning rate")
    optimizer: Literal["momentum", "adam", "adagrad"] = setting(
        "momentum", alias="mime-optimizer", description="optimiser whose state is the server's"
    )
    beta_1: float = setting(0.9, ge=0, lt=1, alias="mime-beta-1", description="decay of m")
    beta_2: float = setting(0.99, ge=0, lt=1, alias="mime-beta-2", description="decay of v, with adam")

    def extra_records(self, state: RuleState, round: Round) -> dict[str, ArrayRecord]:
        x = round.layout.flatten_parameters(round.sent)
        return {
            name: round.layout.parameters_record(state.vector(name, like=x)) for name in USED[self.optimizer]
        }

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras.like_parameters(GRADIENT, answer, round)

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        self.follow(round.means[GRADIENT], state)
        return self.eta * delta

    def follow(self, g: Vector, state: RuleState) -> None:
        """Have the optimiser's state follow the mean of the clients' gradients at x."""
        if MOMENTUM in USED[self.optimizer]:
            m = state.vector(MOMENTUM, like=g)
            m *= self.beta_1
            m += (1 - self.beta_1) * g
        if SECOND_MOMENT in USED[self.optimizer]:
            v, decays = state.vector(SECOND_MOMENT, like=g), self.optimizer == "adam"
            v *= self.beta_2 if decays else 1.0
            v += (1 - self.beta_2 if decays else 1.0) * np.square(g)

"""Mime: Karimireddy et al. 2020, "Mimicking Centralized Stochastic Algorithms" (arXiv 2008.03606)."""

from fedbn_flower.core.ground.wire import GRADIENT

from ...aggregation.fold import Extras, Round
from ...aggregation.rule_state import RuleState
from ...aggregation.vectors import Vector
from ...asking import AsksFirst
from ...messages.validation import Answer
from .mimelite import MimeLite


class Mime(AsksFirst, MimeLite):
    """``x += eta mean_i (x_i - x)``; ``m, v`` follow c, the mean of the clients' gradients at x.

    It needs the local objective ``mime``. The round's clients are asked for their gradients at x first; c
    goes to them with the model, for SVRG's correction of each step. m and v are those of `MimeLite`, with
    ``g = c``: c is the mean over all that answered the question, also those whose model is lost.
    """

    purpose = "MimeLite with each batch's gradient corrected by all clients' gradient (with objective mime)."
    helps = ("label-skew", "few-rounds")
    paper = "karimireddy2020mime"

    requires = {**MimeLite.requires, **AsksFirst.requires, "objective": {"mime"}}  # noqa: RUF012
    first_question = GRADIENT

    def read_extras(self, answer: Answer, round: Round) -> Extras:
        return Extras()

    def server_step(self, delta: Vector, state: RuleState, round: Round) -> Vector:
        self.follow(self.first_mean, state)
        return self.eta * delta

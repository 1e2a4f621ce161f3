"""The plain objective: the loss alone."""

from .base import Objective


class Plain(Objective):
    """The loss f without further terms, whatever the optimiser."""

    purpose = "The loss alone: where to begin."
    helps = ("baseline",)

    elementwise = True
    example_wise = True

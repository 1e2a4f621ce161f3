"""Plain SGD."""

from .base import Objective


class Sgd(Objective):
    """The loss f without further terms."""

    elementwise = True
    example_wise = True

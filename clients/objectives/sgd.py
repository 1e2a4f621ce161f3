"""The plain objective."""

from .base import Objective


class Sgd(Objective):
    """f alone."""

    elementwise = True

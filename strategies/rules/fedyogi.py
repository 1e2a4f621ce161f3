"""FedYogi: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2, the FedYogi line."""

import numpy as np

from ..aggregation.vectors import Vector
from .adaptive import DecayingStrategy


class FedYogi(DecayingStrategy):
    """``x += eta m^ / (sqrt(v^) + tau)``, m as in FedAdam, ``v -= (1 - b2) D^2 sign(v - D^2)``.

    v moves by at most ``(1 - b2) D^2`` a round.
    """

    purpose = "A step size for each parameter that changes slowly: the default."
    helps = ("few-rounds",)
    paper = "reddi2021adaptive"

    eta_l = 0.0316

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v -= (1 - self.beta_2) * squared * np.sign(v - squared)

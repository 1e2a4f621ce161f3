"""FedAdam: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2, the FedAdam line."""

from ..aggregation.vectors import Vector
from .adaptive import DecayingStrategy


class FedAdam(DecayingStrategy):
    """``x += eta m^ / (sqrt(v^) + tau)``, ``m = b1 m + (1 - b1) D``, ``v = b2 v + (1 - b2) D^2``."""

    purpose = "A step size for each parameter that follows recent rounds: few rounds, label skew."
    helps = ("few-rounds", "label-skew")
    paper = "reddi2021adaptive"

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v *= self.beta_2
        v += (1 - self.beta_2) * squared

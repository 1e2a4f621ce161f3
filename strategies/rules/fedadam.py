"""FedAdam: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2, the FedAdam line."""

from ..aggregation.vectors import Vector
from .adaptive import DecayingStrategy


class FedAdam(DecayingStrategy):
    """``v = b2 v + (1 - b2) D^2``."""

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v *= self.beta_2
        v += (1 - self.beta_2) * squared

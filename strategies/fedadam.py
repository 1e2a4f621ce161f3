"""FedAdam: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2, the FedAdam line."""

from dataclasses import dataclass

from .adaptive import AdaptiveStrategy
from .vectors import Vector


@dataclass(eq=False)
class FedAdam(AdaptiveStrategy):
    """``v = b2 v + (1 - b2) D^2``."""

    def second_moment(self, v: Vector, squared: Vector) -> None:
        v *= self.beta_2
        v += (1 - self.beta_2) * squared

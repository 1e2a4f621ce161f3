"""FedAvgM: Hsu et al. 2019, "Measuring the Effects of Non-Identical Data Distribution" (arXiv 1909.06335)."""

from dataclasses import dataclass

from .base import PseudoGradientStrategy
from .checks import require
from .vectors import Vector


@dataclass(eq=False)
class FedAvgM(PseudoGradientStrategy):
    """``v = server_momentum v + D; x += server_learning_rate v``, under Flower's argument names.

    Parameters
    ----------
    server_learning_rate : float
        > 0.
    server_momentum : float
        In [0, 1). Flower's default is 0, which makes it FedAvg.
    """

    server_learning_rate: float = 1.0
    server_momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        rate, momentum = self.server_learning_rate, self.server_momentum
        require(rate > 0, "server_learning_rate", rate, "a number > 0")
        require(0 <= momentum < 1, "server_momentum", momentum, "a number in [0, 1)")

    def step(self, delta: Vector, t: int) -> Vector:
        v = self.vector("velocity", like=delta)
        v *= self.server_momentum
        v += delta
        return self.server_learning_rate * v

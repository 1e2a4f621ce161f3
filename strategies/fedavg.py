"""FedAvg: federated averaging as server SGD on the pseudo-gradient.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data"
(arXiv 1602.05629), Algorithm 1; with server momentum it is FedAvgM, Hsu et al. 2019 (1909.06335).
"""

from dataclasses import dataclass

from .base import PseudoGradientStrategy
from .checks import require
from .vectors import Vector


@dataclass(eq=False, kw_only=True)
class FedAvg(PseudoGradientStrategy):
    """``x += eta D``; with momentum ``v = momentum v + D; x += eta v``.

    With the defaults, ``x`` becomes the weighted mean of the clients' models.

    Parameters
    ----------
    eta : float
        Server learning rate, > 0.
    momentum : float
        Server momentum, in [0, 1).
    """

    eta: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.eta > 0, "eta", self.eta, "a number > 0")
        require(0 <= self.momentum < 1, "momentum", self.momentum, "a number in [0, 1)")

    def step(self, delta: Vector, t: int) -> Vector:
        if self.momentum:
            velocity = self.vector("velocity", like=delta)
            velocity *= self.momentum
            velocity += delta
            delta = velocity
        return self.eta * delta

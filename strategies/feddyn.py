"""FedDyn: Acar et al. 2021, "Federated Learning Based on Dynamic Regularization" (arXiv 2111.04263)."""

from dataclasses import dataclass

from .base import PseudoGradientStrategy
from .checks import require
from .vectors import Vector


@dataclass(eq=False, kw_only=True)
class FedDyn(PseudoGradientStrategy):
    """``h -= (alpha/M) sum_i (x_i - x); x = mean_i x_i - h / alpha`` (Algorithm 1), over those that answered.

    Goes with the local objective of that name and its ``alpha``. The mean is plain, by the paper.

    Parameters
    ----------
    alpha : float
        Weight of the dynamic regulariser, > 0; the same as the clients'.
    num_clients : int, optional
        M, the number of all clients; by default the nodes connected.
    """

    partner = "feddyn"
    uniform = True

    alpha: float = 0.01
    num_clients: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.alpha > 0, "alpha", self.alpha, "a number > 0")
        require(
            self.num_clients is None or self.num_clients > 0, "num_clients", self.num_clients, "a number > 0"
        )

    def step(self, delta: Vector, t: int) -> Vector:
        h = self.vector("h", like=delta)
        h -= (self.alpha * self.num_replies / (self.num_clients or self.known_clients)) * delta
        return delta - h / self.alpha

"""FedAvgM: Hsu et al. 2019, "Measuring the Effects of Non-Identical Data Distribution" (arXiv 1909.06335)."""

from dataclasses import dataclass

from .fedavg import FedAvg


@dataclass(eq=False, kw_only=True)
class FedAvgM(FedAvg):
    """`FedAvg` with server momentum, 0.9 by default: ``v = momentum v + D; x += eta v``."""

    momentum: float = 0.9

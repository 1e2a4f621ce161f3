"""Server rules: each a subclass of Flower's Message-API ``Strategy``, one file each.

They are drop-in replacements for Flower's rules of the same name::

    from strategies import FedYogi  # instead of: from flwr.serverapp.strategy import FedYogi
"""

from .base import PhaseReport, PseudoGradientStrategy
from .fedadagrad import FedAdagrad
from .fedadam import FedAdam
from .fedavg import FedAvg
from .fedyogi import FedYogi

STRATEGIES: dict[str, type[PseudoGradientStrategy]] = {
    "fedavg": FedAvg,
    "fedadagrad": FedAdagrad,
    "fedyogi": FedYogi,
    "fedadam": FedAdam,
}

__all__ = [
    "STRATEGIES",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedYogi",
    "PhaseReport",
    "PseudoGradientStrategy",
]

"""Server rules: each a subclass of Flower's Message-API ``Strategy``, one file each.

They are drop-in replacements for Flower's rules of the same name::

    from strategies import FedYogi  # instead of: from flwr.serverapp.strategy import FedYogi
"""

from .base import PseudoGradientStrategy
from .fedadagrad import FedAdagrad
from .fedadam import FedAdam
from .fedavg import FedAvg
from .fedavgm import FedAvgM
from .feddyn import FedDyn
from .fednova import FedNova
from .fedyogi import FedYogi
from .nodes import TooFewNodes
from .replies import PhaseReport
from .scaffold import Scaffold

STRATEGIES: dict[str, type[PseudoGradientStrategy]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fednova": FedNova,
    "fedadagrad": FedAdagrad,
    "fedyogi": FedYogi,
    "fedadam": FedAdam,
    "feddyn": FedDyn,
    "scaffold": Scaffold,
}

__all__ = [
    "STRATEGIES",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedDyn",
    "FedNova",
    "FedYogi",
    "PhaseReport",
    "PseudoGradientStrategy",
    "Scaffold",
    "TooFewNodes",
]

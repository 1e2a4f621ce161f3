"""Local objectives, one file each."""

from .base import LocalWork, Objective, Outcome
from .feddyn import FedDyn
from .fedprox import FedProx
from .scaffold import Scaffold
from .sgd import Sgd

OBJECTIVES: dict[str, type[Objective]] = {
    "sgd": Sgd,
    "fedprox": FedProx,
    "feddyn": FedDyn,
    "scaffold": Scaffold,
}

__all__ = ["OBJECTIVES", "LocalWork", "Objective", "Outcome"]

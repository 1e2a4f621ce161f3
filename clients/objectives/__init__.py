"""Local objectives, one file each."""

from .base import Objective, Outcome
from .feddyn import FedDyn
from .fedprox import FedProx
from .scaffold import Scaffold

OBJECTIVES: dict[str, type[Objective]] = {
    "sgd": Objective,
    "fedprox": FedProx,
    "feddyn": FedDyn,
    "scaffold": Scaffold,
}

__all__ = ["OBJECTIVES", "Objective", "Outcome"]

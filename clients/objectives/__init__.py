"""Local objectives, one file each."""

from .base import Local, LocalWork, Objective, Outcome
from .feddyn import FedDyn
from .fedntd import FedNTD
from .fedproto import FedProto
from .fedprox import FedProx
from .fedrs import FedRS
from .fedsam import FedSAM
from .fedsat import FedSat
from .moon import Moon
from .scaffold import Scaffold, ScaffoldMomentum
from .sgd import Sgd

OBJECTIVES: dict[str, type[Objective]] = {
    "sgd": Sgd,
    "fedprox": FedProx,
    "feddyn": FedDyn,
    "scaffold": Scaffold,
    "scaffold-momentum": ScaffoldMomentum,
    "moon": Moon,
    "fedrs": FedRS,
    "fedsam": FedSAM,
    "fedntd": FedNTD,
    "fedproto": FedProto,
    "fedsat": FedSat,
}
"""Built-in objectives by name. To add one, import it above and enter it here."""

__all__ = ["OBJECTIVES", "Local", "LocalWork", "Objective", "Outcome"]

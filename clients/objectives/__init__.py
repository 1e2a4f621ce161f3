"""Local objectives, one file each."""

from .base import Local, LocalWork, Objective, Outcome
from .feddecorr import FedDecorr
from .feddyn import FedDyn
from .fedlc import FedLC
from .fedntd import FedNTD
from .fedpac import FedPAC
from .fedproto import FedProto
from .fedprox import FedProx
from .fedrs import FedRS
from .fedsam import FedSAM
from .fedsat import FedSat
from .moon import Moon
from .plain import Plain
from .scaffold import Scaffold, ScaffoldMomentum

OBJECTIVES: dict[str, type[Objective]] = {
    "plain": Plain,
    "fedprox": FedProx,
    "feddyn": FedDyn,
    "scaffold": Scaffold,
    "scaffold-momentum": ScaffoldMomentum,
    "moon": Moon,
    "fedrs": FedRS,
    "fedlc": FedLC,
    "fedsam": FedSAM,
    "fedntd": FedNTD,
    "feddecorr": FedDecorr,
    "fedproto": FedProto,
    "fedpac": FedPAC,
    "fedsat": FedSat,
}
"""Built-in objectives by name. To add one, import it above and enter it here."""

FORMER_NAMES = {"sgd": "plain"}
"""Former names of objectives, which mean the same ones."""

__all__ = ["FORMER_NAMES", "OBJECTIVES", "Local", "LocalWork", "Objective", "Outcome"]

"""Local objectives, one file each."""

from .base import Local, LocalWork, Objective, Outcome
from .drift.fedacg import FedACG
from .drift.fedadmm import FedADMM
from .drift.fedcm import FedCM
from .drift.feddc import FedDC
from .drift.mime import Mime
from .drift.mimelite import MimeLite
from .feddecorr import FedDecorr
from .feddyn import FedDyn
from .fedgkd import FedGKD
from .fedlc import FedLC
from .fedntd import FedNTD
from .fedpac import FedPAC
from .fedproto import FedProto
from .fedprox import FedProx
from .fedrs import FedRS
from .fedsat import FedSat
from .fedtan import FedTAN
from .moon import Moon
from .plain import Plain
from .scaffold import Scaffold, ScaffoldMomentum
from .sharpness.fedsam import FedSAM
from .sharpness.fedsmoo import FedSMOO
from .sharpness.fedspeed import FedSpeed

OBJECTIVES: dict[str, type[Objective]] = {
    "plain": Plain,
    "fedprox": FedProx,
    "feddyn": FedDyn,
    "scaffold": Scaffold,
    "scaffold-momentum": ScaffoldMomentum,
    "feddc": FedDC,
    "fedadmm": FedADMM,
    "fedcm": FedCM,
    "fedacg": FedACG,
    "mimelite": MimeLite,
    "mime": Mime,
    "fedtan": FedTAN,
    "moon": Moon,
    "fedrs": FedRS,
    "fedlc": FedLC,
    "fedsam": FedSAM,
    "fedspeed": FedSpeed,
    "fedsmoo": FedSMOO,
    "fedntd": FedNTD,
    "fedgkd": FedGKD,
    "feddecorr": FedDecorr,
    "fedproto": FedProto,
    "fedpac": FedPAC,
    "fedsat": FedSat,
}
"""Built-in objectives by name. To add one, import it above and enter it here."""

__all__ = ["OBJECTIVES", "Local", "LocalWork", "Objective", "Outcome"]

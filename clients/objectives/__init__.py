"""Local objectives, by family."""

from .base import Local, LocalWork, Objective, Outcome, Plain
from .drift import FedACG, FedADMM, FedCM, FedDC, FedDyn, FedProx, Mime, MimeLite, Scaffold, ScaffoldMomentum
from .features import FedDecorr, FedPAC, FedProto, Moon
from .fedtan import FedTAN
from .logits import FedGKD, FedLC, FedNTD, FedRS, FedSat
from .sharpness import FedSAM, FedSMOO, FedSpeed

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

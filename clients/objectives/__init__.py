"""Local objectives, one file each."""

from pkgutil import resolve_name

from .base import Local, LocalWork, Objective, Outcome

_PLACES = {
    "sgd": "sgd:Sgd",
    "fedprox": "fedprox:FedProx",
    "feddyn": "feddyn:FedDyn",
    "scaffold": "scaffold:Scaffold",
    "scaffold-momentum": "scaffold:ScaffoldMomentum",
    "moon": "moon:Moon",
    "fedrs": "fedrs:FedRS",
    "fedsam": "fedsam:FedSAM",
    "fedntd": "fedntd:FedNTD",
    "fedproto": "fedproto:FedProto",
    "fedsat": "fedsat:FedSat",
}
"""Built-in objectives: name -> ``module:Class`` in this package. To add one, add a line here."""

OBJECTIVES: dict[str, type[Objective]] = {
    name: resolve_name(f"{__name__}.{place}") for name, place in _PLACES.items()
}

__all__ = ["OBJECTIVES", "Local", "LocalWork", "Objective", "Outcome"]

"""Clients: stateful Flower NumPyClients (which part of the model stays at home) and local objectives."""

from .base import FedAvgClient, LocalTask
from .examples import Examples
from .fedbn import FedBNClient
from .objectives import OBJECTIVES, Objective
from .silobn import SiloBNClient
from .state import ClientState
from .training import LocalTraining, evaluate_splits, load_entries

CLIENTS: dict[str, type[FedAvgClient]] = {
    "fedavg": FedAvgClient,
    "silobn": SiloBNClient,
    "fedbn": FedBNClient,
}

__all__ = [
    "CLIENTS",
    "OBJECTIVES",
    "ClientState",
    "Examples",
    "FedAvgClient",
    "FedBNClient",
    "LocalTask",
    "LocalTraining",
    "Objective",
    "SiloBNClient",
    "evaluate_splits",
    "load_entries",
]

"""Clients: stateful Flower NumPyClients (which part of the model stays at home) and local objectives."""

from .base import FedAvgClient, LocalTask
from .examples import Examples
from .fedbn import FedBNClient
from .memory import ContextStore, Groups, Memory, Store
from .names import trainable_names
from .objectives import OBJECTIVES, LocalWork, Objective, Outcome
from .settings import setting
from .silobn import SiloBNClient
from .training import LocalTraining, evaluate_splits, load_entries

CLIENTS: dict[str, type[FedAvgClient]] = {
    "fedavg": FedAvgClient,
    "silobn": SiloBNClient,
    "fedbn": FedBNClient,
}

__all__ = [
    "CLIENTS",
    "OBJECTIVES",
    "ContextStore",
    "Examples",
    "FedAvgClient",
    "FedBNClient",
    "Groups",
    "LocalTask",
    "LocalTraining",
    "LocalWork",
    "Memory",
    "Objective",
    "Outcome",
    "SiloBNClient",
    "Store",
    "evaluate_splits",
    "load_entries",
    "setting",
    "trainable_names",
]

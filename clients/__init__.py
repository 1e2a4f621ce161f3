"""Clients: stateful Flower NumPyClients (which part of the model stays at home) and local objectives."""

from .alone import AloneClient
from .base import FedAvgClient, LocalTask
from .examples import Columns, Examples, Prepare
from .fedbn import FedBNClient
from .losses import LOSSES, Loss
from .memory import ContextStore, Groups, Memory, Store
from .names import trainable_names
from .objectives import OBJECTIVES, Local, LocalWork, Objective, Outcome
from .problems import Classification, LeastSquares, NextCharacter, Problem, Regression
from .settings import setting
from .silobn import SiloBNClient
from .training import LocalTraining, evaluate_splits, load_entries
from .update import Received, Records, Update

CLIENTS: dict[str, type[FedAvgClient]] = {
    "fedavg": FedAvgClient,
    "silobn": SiloBNClient,
    "fedbn": FedBNClient,
    "alone": AloneClient,
}

__all__ = [
    "CLIENTS",
    "LOSSES",
    "OBJECTIVES",
    "AloneClient",
    "Classification",
    "Columns",
    "ContextStore",
    "Examples",
    "FedAvgClient",
    "FedBNClient",
    "Groups",
    "LeastSquares",
    "Local",
    "LocalTask",
    "LocalTraining",
    "LocalWork",
    "Loss",
    "Memory",
    "NextCharacter",
    "Objective",
    "Outcome",
    "Prepare",
    "Problem",
    "Received",
    "Records",
    "Regression",
    "SiloBNClient",
    "Store",
    "Update",
    "evaluate_splits",
    "load_entries",
    "setting",
    "trainable_names",
]

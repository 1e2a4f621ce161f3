"""Clients: stateful Flower NumPyClients (which part of the model stays at home) and local objectives."""

from .base import FedAvgClient, LocalTask
from .examples import Columns, Examples, Prepare
from .fedbn import FedBNClient
from .names import trainable_names
from .objectives import OBJECTIVES, LocalWork, Objective, Outcome
from .problems import Classification, LeastSquares, NextCharacter, Problem, Regression
from .settings import setting
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
    "Classification",
    "ClientState",
    "Columns",
    "Examples",
    "FedAvgClient",
    "FedBNClient",
    "LeastSquares",
    "LocalTask",
    "LocalTraining",
    "LocalWork",
    "NextCharacter",
    "Objective",
    "Outcome",
    "Prepare",
    "Problem",
    "Regression",
    "SiloBNClient",
    "evaluate_splits",
    "load_entries",
    "setting",
    "trainable_names",
]

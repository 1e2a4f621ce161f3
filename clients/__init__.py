"""Clients: stateful Flower NumPyClients (which part of the model stays at home) and local objectives."""

from .base import FedAvgClient, LocalTask
from .examples import Columns, Examples, Prepare
from .losses import LOSSES, Loss
from .memory import ContextStore, Groups, Memory, Store
from .modules.parameter_names import trainable_names
from .objectives import OBJECTIVES, Local, LocalWork, Objective, Outcome
from .policies.alone import AloneClient
from .policies.ditto import DittoClient
from .policies.fedbn import FedBNClient
from .policies.fedper import FedPerClient
from .policies.fedrep import FedRepClient
from .policies.silobn import SiloBNClient
from .problems import Classification, LeastSquares, NextCharacter, Problem, Regression
from .settings import setting
from .training import LocalTraining, evaluate_splits, load_entries
from .update import NamedArrays, Received, Records, Update, by_name

CLIENTS: dict[str, type[FedAvgClient]] = {
    "fedavg": FedAvgClient,
    "silobn": SiloBNClient,
    "fedbn": FedBNClient,
    "alone": AloneClient,
    "fedper": FedPerClient,
    "fedrep": FedRepClient,
    "ditto": DittoClient,
}

__all__ = [
    "CLIENTS",
    "LOSSES",
    "OBJECTIVES",
    "AloneClient",
    "Classification",
    "Columns",
    "ContextStore",
    "DittoClient",
    "Examples",
    "FedAvgClient",
    "FedBNClient",
    "FedPerClient",
    "FedRepClient",
    "Groups",
    "LeastSquares",
    "Local",
    "LocalTask",
    "LocalTraining",
    "LocalWork",
    "Loss",
    "Memory",
    "NamedArrays",
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
    "by_name",
    "evaluate_splits",
    "load_entries",
    "setting",
    "trainable_names",
]

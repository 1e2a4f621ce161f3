"""Clients: stateful Flower NumPyClients, which keep part of the model at home, and local objectives."""

from fedbn_flower.core.ground.settings import setting

from .base import FedAvgClient
from .examples import Columns, Examples, Prepare
from .losses import LOSSES, Loss
from .memory import ContextStore, Groups, Memory, Store
from .modules.parameter_names import trainable_names
from .objectives import FORMER_NAMES, OBJECTIVES, Local, LocalWork, Objective, Outcome
from .policies.alone import AloneClient
from .policies.ditto import DittoClient
from .policies.fbn import FBNClient
from .policies.fedbabu import FedBABUClient
from .policies.fedbn import FedBNClient
from .policies.fedpac import FedPACClient
from .policies.fedper import FedPerClient
from .policies.fedrep import FedRepClient
from .policies.fixbn import FixBNClient
from .policies.hbn import HBNClient
from .policies.lg_fedavg import LGFedAvgClient
from .policies.silobn import SiloBNClient
from .problems import (
    METRICS,
    PROBLEMS,
    Classification,
    LeastSquares,
    Metric,
    MultiLabel,
    NextCharacter,
    Predicted,
    Problem,
    Regression,
    Segmentation,
)
from .problems.evaluation import evaluate_splits
from .training import LocalTask, LocalTraining, load_entries
from .update import NamedArrays, Received, Records, Update, by_name

CLIENTS: dict[str, type[FedAvgClient]] = {
    "fedavg": FedAvgClient,
    "silobn": SiloBNClient,
    "fedbn": FedBNClient,
    "fixbn": FixBNClient,
    "fbn": FBNClient,
    "hbn": HBNClient,
    "alone": AloneClient,
    "fedper": FedPerClient,
    "fedrep": FedRepClient,
    "fedpac": FedPACClient,
    "fedbabu": FedBABUClient,
    "lg-fedavg": LGFedAvgClient,
    "ditto": DittoClient,
}
"""Built-in clients by name. To add one, import it above and enter it here."""

__all__ = [
    "CLIENTS",
    "FORMER_NAMES",
    "LOSSES",
    "METRICS",
    "OBJECTIVES",
    "PROBLEMS",
    "AloneClient",
    "Classification",
    "Columns",
    "ContextStore",
    "DittoClient",
    "Examples",
    "FBNClient",
    "FedAvgClient",
    "FedBABUClient",
    "FedBNClient",
    "FedPACClient",
    "FedPerClient",
    "FedRepClient",
    "FixBNClient",
    "Groups",
    "HBNClient",
    "LGFedAvgClient",
    "LeastSquares",
    "Local",
    "LocalTask",
    "LocalTraining",
    "LocalWork",
    "Loss",
    "Memory",
    "Metric",
    "MultiLabel",
    "NamedArrays",
    "NextCharacter",
    "Objective",
    "Outcome",
    "Predicted",
    "Prepare",
    "Problem",
    "Received",
    "Records",
    "Regression",
    "Segmentation",
    "SiloBNClient",
    "Store",
    "Update",
    "by_name",
    "evaluate_splits",
    "load_entries",
    "setting",
    "trainable_names",
]

"""Clients: stateful Flower NumPyClients, which keep part of the model at home, and local objectives."""

from fedbn_flower.core.ground.settings import setting

from .base import FedAvgClient
from .examples import Columns, Examples, Prepare
from .losses import LOSSES, Loss
from .memory import ContextStore, Groups, Memory, Store
from .modules.arrays import trainable_names
from .objectives import OBJECTIVES, Local, LocalWork, Objective, Outcome
from .policies.fedala import FedALAClient
from .policies.fedrod import FedRoDClient
from .policies.partial import (
    AloneClient,
    FedBABUClient,
    FedBNClient,
    FedPACClient,
    FedPerClient,
    FedRepClient,
    FixBNClient,
    LGFedAvgClient,
    SiloBNClient,
)
from .policies.per_fedavg import PerFedAvgClient
from .policies.personal import APFLClient, DittoClient, FedInitClient, KNNPerClient, PFedMeClient
from .policies.pooling import FBNClient, HBNClient
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
    "shared": FedAvgClient,
    "silobn": SiloBNClient,
    "fedbn": FedBNClient,
    "fixbn": FixBNClient,
    "fbn": FBNClient,
    "hbn": HBNClient,
    "fedinit": FedInitClient,
    "alone": AloneClient,
    "fedper": FedPerClient,
    "fedrep": FedRepClient,
    "fedpac": FedPACClient,
    "fedbabu": FedBABUClient,
    "lg-fedavg": LGFedAvgClient,
    "fedrod": FedRoDClient,
    "ditto": DittoClient,
    "apfl": APFLClient,
    "pfedme": PFedMeClient,
    "per-fedavg": PerFedAvgClient,
    "fedala": FedALAClient,
    "knn-per": KNNPerClient,
}
"""Built-in clients by name. To add one, import it above and enter it here."""

FORMER_NAMES = {"client": {"fedavg": "shared"}, "objective": {"sgd": "plain"}}
"""Today's names of what was called something else, by kind."""

__all__ = [
    "CLIENTS",
    "FORMER_NAMES",
    "LOSSES",
    "METRICS",
    "OBJECTIVES",
    "PROBLEMS",
    "APFLClient",
    "AloneClient",
    "Classification",
    "Columns",
    "ContextStore",
    "DittoClient",
    "Examples",
    "FBNClient",
    "FedALAClient",
    "FedAvgClient",
    "FedBABUClient",
    "FedBNClient",
    "FedPACClient",
    "FedPerClient",
    "FedRepClient",
    "FedRoDClient",
    "FixBNClient",
    "Groups",
    "HBNClient",
    "KNNPerClient",
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
    "PFedMeClient",
    "PerFedAvgClient",
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

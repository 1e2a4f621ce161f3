"""Server rules: each a Flower ``FedAvg`` of the Message API with a step of its own, one file each.

They are drop-in replacements for Flower's rules of the same name::

    from strategies import FedYogi  # instead of: from flwr.serverapp.strategy import FedYogi
"""

from .base import PseudoGradientStrategy
from .checks import Answer, ReplyRefused
from .expected import ExpectedMetrics, Range
from .fedadagrad import FedAdagrad
from .fedadam import FedAdam
from .fedavg import FedAvg, FedAvgM, FedMedian, FedProx, FedTrimmedAvg
from .feddyn import FedDyn
from .fednova import FedNova
from .fedproto import FedProto
from .fedsat import FedSat
from .fedyogi import FedYogi
from .nodes import Participation, TooFewNodes
from .replies import PhaseReport
from .rounds import Extras, Round
from .scaffold import Scaffold, ScaffoldMomentum
from .settings import setting
from .state import RuleState
from .vectors import Vector

STRATEGIES: dict[str, type[PseudoGradientStrategy]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fednova": FedNova,
    "fedadagrad": FedAdagrad,
    "fedyogi": FedYogi,
    "fedadam": FedAdam,
    "feddyn": FedDyn,
    "scaffold": Scaffold,
    "scaffold-momentum": ScaffoldMomentum,
    "fedproto": FedProto,
    "fedsat": FedSat,
}

__all__ = [
    "STRATEGIES",
    "Answer",
    "ExpectedMetrics",
    "Extras",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedDyn",
    "FedMedian",
    "FedNova",
    "FedProto",
    "FedProx",
    "FedSat",
    "FedTrimmedAvg",
    "FedYogi",
    "Participation",
    "PhaseReport",
    "PseudoGradientStrategy",
    "Range",
    "ReplyRefused",
    "Round",
    "RuleState",
    "Scaffold",
    "ScaffoldMomentum",
    "TooFewNodes",
    "Vector",
    "setting",
]

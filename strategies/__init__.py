"""Server rules: subclasses of Flower's ``FedAvg`` (Message API), one file each.

They are drop-in replacements for Flower's rules of the same name::

    from strategies import FedYogi  # instead of: from flwr.serverapp.strategy import FedYogi
"""

from fedbn_flower.core.ground.settings import setting

from .aggregation.fold import Extras, Round
from .aggregation.rule_state import RuleState
from .aggregation.vectors import Vector
from .base import PseudoGradientStrategy, check_wrapper
from .expected import ExpectedMetrics, Range
from .messages.codecs import CODECS, Codec
from .messages.gate import ReplyRefused
from .messages.nodes import Participation, TooFewNodes
from .messages.replies import PhaseReport
from .messages.validation import Answer
from .rules.cfl import CFL
from .rules.fedadagrad import FedAdagrad
from .rules.fedadam import FedAdam
from .rules.fedamp import FedAMP
from .rules.fedams import FedAMS
from .rules.fedap import FedAP
from .rules.fedavg import FedAvg, FedAvgM, FedMedian, FedProx, FedTrimmedAvg
from .rules.feddyn import FedDyn
from .rules.fednova import FedNova
from .rules.fedpac import FedPAC
from .rules.fedproto import FedProto
from .rules.fedsat import FedSat
from .rules.fedyogi import FedYogi
from .rules.ifca import IFCA
from .rules.krum import Bulyan, Krum, MultiKrum
from .rules.scaffold import Scaffold, ScaffoldMomentum
from .selections import SELECTIONS, Candidates, Selection

STRATEGIES: dict[str, type[PseudoGradientStrategy]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fednova": FedNova,
    "fedadagrad": FedAdagrad,
    "fedyogi": FedYogi,
    "fedadam": FedAdam,
    "fedams": FedAMS,
    "feddyn": FedDyn,
    "scaffold": Scaffold,
    "scaffold-momentum": ScaffoldMomentum,
    "fedproto": FedProto,
    "fedsat": FedSat,
    "ifca": IFCA,
    "cfl": CFL,
    "fedamp": FedAMP,
    "fedap": FedAP,
    "fedpac": FedPAC,
}
"""Built-in rules by name. To add one, import it above and enter it here."""

__all__ = [
    "CODECS",
    "SELECTIONS",
    "STRATEGIES",
    "Answer",
    "Bulyan",
    "Candidates",
    "Codec",
    "ExpectedMetrics",
    "Extras",
    "FedAMS",
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
    "Krum",
    "MultiKrum",
    "Participation",
    "PhaseReport",
    "PseudoGradientStrategy",
    "Range",
    "ReplyRefused",
    "Round",
    "RuleState",
    "Scaffold",
    "ScaffoldMomentum",
    "Selection",
    "TooFewNodes",
    "Vector",
    "check_wrapper",
    "setting",
]

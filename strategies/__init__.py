"""Server rules: subclasses of Flower's ``FedAvg`` (Message API), one file each.

They are drop-in replacements for Flower's rules of the same name::

    from strategies import FedYogi  # instead of: from flwr.serverapp.strategy import FedYogi
"""

from fedbn_flower.core.ground.settings import setting

from .aggregation.fold import Extras, Round
from .aggregation.rule_state import RuleState
from .aggregation.vectors import Vector
from .asking import AsksFirst
from .base import PseudoGradientStrategy
from .expected import ExpectedMetrics
from .flower_wrappers import check_wrapper
from .messages.codecs import CODECS, Codec
from .messages.gate import ReplyRefused
from .messages.nodes import Participation, TooFewNodes
from .messages.ranges import Range
from .messages.replies import PhaseReport
from .messages.validation import Answer
from .rules.drift.fedacg import FedACG
from .rules.drift.fedadmm import FedADMM
from .rules.drift.fedcm import FedCM
from .rules.drift.feddc import FedDC
from .rules.drift.mime import Mime
from .rules.drift.mimelite import MimeLite
from .rules.fair.afl import AFL
from .rules.fair.qfedavg import QFedAvg
from .rules.fair.term import TERM
from .rules.fedadagrad import FedAdagrad
from .rules.fedadam import FedAdam
from .rules.fedams import FedAMS
from .rules.fedavg import FedAvg, FedAvgM, FedMedian, FedProx, FedTrimmedAvg
from .rules.feddisco import FedDisco
from .rules.feddyn import FedDyn
from .rules.fedexp import FedExP
from .rules.fednova import FedNova
from .rules.fedproto import FedProto
from .rules.fedsat import FedSat
from .rules.fedsmoo import FedSMOO
from .rules.fedtan import FedTAN
from .rules.fedyogi import FedYogi
from .rules.krum import Bulyan, Krum, MultiKrum
from .rules.scaffold import Scaffold, ScaffoldMomentum
from .rules.several.cfl import CFL
from .rules.several.fedamp import FedAMP
from .rules.several.fedap import FedAP
from .rules.several.fedpac import FedPAC
from .rules.several.ifca import IFCA
from .selections import SELECTIONS, Candidates, Selection

STRATEGIES: dict[str, type[PseudoGradientStrategy]] = {
    "fedavg": FedAvg,
    "fedavgm": FedAvgM,
    "fednova": FedNova,
    "fedadagrad": FedAdagrad,
    "fedyogi": FedYogi,
    "fedadam": FedAdam,
    "fedams": FedAMS,
    "fedexp": FedExP,
    "feddisco": FedDisco,
    "qfedavg": QFedAvg,
    "term": TERM,
    "afl": AFL,
    "feddyn": FedDyn,
    "fedsmoo": FedSMOO,
    "scaffold": Scaffold,
    "scaffold-momentum": ScaffoldMomentum,
    "feddc": FedDC,
    "fedadmm": FedADMM,
    "fedcm": FedCM,
    "fedacg": FedACG,
    "mimelite": MimeLite,
    "mime": Mime,
    "fedtan": FedTAN,
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
    "AFL",
    "CODECS",
    "SELECTIONS",
    "STRATEGIES",
    "TERM",
    "Answer",
    "AsksFirst",
    "Bulyan",
    "Candidates",
    "Codec",
    "ExpectedMetrics",
    "Extras",
    "FedACG",
    "FedADMM",
    "FedAMS",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDC",
    "FedDisco",
    "FedDyn",
    "FedExP",
    "FedMedian",
    "FedNova",
    "FedProto",
    "FedProx",
    "FedSMOO",
    "FedSat",
    "FedTrimmedAvg",
    "FedYogi",
    "Krum",
    "Mime",
    "MimeLite",
    "MultiKrum",
    "Participation",
    "PhaseReport",
    "PseudoGradientStrategy",
    "QFedAvg",
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

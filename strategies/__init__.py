"""Server rules: subclasses of Flower's ``FedAvg`` (Message API).

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
from .guarantees import check_wrapper
from .messages.codecs import CODECS, Codec
from .messages.gate import ReplyRefused
from .messages.nodes import Participation, TooFewNodes
from .messages.replies import PhaseReport
from .messages.validation import Answer, Range
from .rules.adaptive import FedAdagrad, FedAdam, FedAMS, FedYogi
from .rules.averaging import (
    Bulyan,
    FedAvg,
    FedAvgM,
    FedDisco,
    FedExP,
    FedMedian,
    FedNova,
    FedProx,
    FedTrimmedAvg,
    Krum,
    MultiKrum,
)
from .rules.by_class import FedProto, FedSat
from .rules.clustered import CFL, IFCA
from .rules.drift import (
    FedACG,
    FedADMM,
    FedCM,
    FedDC,
    FedDyn,
    FedSMOO,
    Mime,
    MimeLite,
    Scaffold,
    ScaffoldMomentum,
)
from .rules.fair import AFL, TERM, QFedAvg
from .rules.fedtan import FedTAN
from .rules.personal import FedAMP, FedAP, FedPAC
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

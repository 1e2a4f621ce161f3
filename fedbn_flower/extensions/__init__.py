"""What changes or watches a run without being an algorithm: a file each.

Those of `BUILT_IN` are part of every run, and do nothing without their keys.
"""

from .attack import Attack, AttackKeys
from .base import AtClient, Extension, Moment, Outgoing, Stop
from .before_evaluation import AdaptBN, AdaptBNKeys, FineTuning
from .compression import Compression, CompressionKeys
from .conflict import Conflict
from .devices import Devices, DevicesKeys
from .divergence import Divergence
from .freezing import Freezing, FreezingKeys
from .holdout import Holdout, HoldoutKeys
from .patience import Patience, PatienceKeys
from .pooled_statistics import PooledStatistics
from .predictions import Predictions, PredictionsKeys
from .privacy import Privacy, PrivacyKeys
from .protocol import Protocol, ProtocolKeys
from .rates import Rates
from .recalibration import Recalibration, RecalibrationKeys
from .secagg.extension import SecAgg
from .secagg.keys import SecAggKeys
from .selection import Selection, SelectionKeys
from .target import Target, TargetKeys
from .update_norm import UpdateNorm

__all__ = [
    "BUILT_IN",
    "EXTENSIONS",
    "AtClient",
    "Conflict",
    "Extension",
    "ExtensionKeys",
    "Moment",
    "Outgoing",
    "Stop",
]

EXTENSIONS: dict[str, type[Extension]] = {
    "update-norm": UpdateNorm,
}
"""Those that a run names, by name. To add one, import it above and enter it here."""

BUILT_IN: tuple[type[Extension], ...] = (
    SecAgg,  # of all others' answers there is a sum
    Compression,  # nearest to the wire: the others see whole models
    PooledStatistics,  # what clients gathered, before anybody reads it as statistics
    Attack,  # what it makes of updates and answers is coded and read as any other
    Selection,
    Holdout,  # before whatever goes by the number of clients that train
    Freezing,
    Target,  # a run that reaches its target in the round in which the budget is spent has reached it
    Privacy,  # before patience: such a run could not have gone on
    Patience,
    Protocol,
    Devices,
    Rates,
    FineTuning,
    AdaptBN,
    Predictions,
    Recalibration,
    Divergence,
)
"""In the order from the wire: what comes from it goes through them in this order, what goes to it (`send`,
`settings`, `trained`) in the opposite one. Of those that end a run in one round, the first says why; of those
that do not go with the rest of a configuration, it is told first. A run's own ones come after them."""


class ExtensionKeys(
    SelectionKeys,
    CompressionKeys,
    FreezingKeys,
    DevicesKeys,
    ProtocolKeys,
    PrivacyKeys,
    AttackKeys,
    SecAggKeys,
    PatienceKeys,
    TargetKeys,
    HoldoutKeys,
    PredictionsKeys,
    AdaptBNKeys,
    RecalibrationKeys,
):
    """Their keys; a group that follows a key of another one is below it."""

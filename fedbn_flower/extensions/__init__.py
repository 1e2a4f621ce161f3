"""What changes or watches a run without being an algorithm.

Those of `BUILT_IN` are part of every run, and do nothing without their keys.
"""

from .attack import Attack, AttackKeys
from .base import AtClient, Conflict, Extension, Moment, Outgoing, Stop
from .compression import Compression, CompressionKeys
from .devices import Devices, DevicesKeys
from .evaluating import (
    AdaptBN,
    AdaptBNKeys,
    FineTuning,
    Predictions,
    PredictionsKeys,
    Recalibration,
    RecalibrationKeys,
)
from .holdout import Holdout, HoldoutKeys
from .patience import Patience, PatienceKeys
from .pooled_statistics import PooledStatistics
from .privacy import Privacy, PrivacyKeys
from .protocol import Protocol, ProtocolKeys
from .secagg.extension import SecAgg
from .secagg.keys import SecAggKeys
from .selection import Selection, SelectionKeys
from .target import Target, TargetKeys
from .training import Freezing, FreezingKeys, Rates
from .watching import Divergence, UpdateNorm

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
